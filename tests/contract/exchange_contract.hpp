// What every transport must do. Collective: all ranks run it together, on transports of one group,
// each with its own place in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/exchange/transport.hpp"
#include "core/backoff.hpp"
#include "core/deadline.hpp"
#include "core/launcher.hpp"
#include "support/catch.hpp"
#include "support/device_memory.hpp"

namespace safeshuffle::testing {

inline core::Deadline patience() {
  return core::Deadline(std::chrono::seconds(30));
}

/// Drives an exchange to its end; whether it came.
inline bool finish(comm::Pending& pending) {
  const core::Deadline deadline = patience();
  core::Backoff backoff;
  while (!pending.done()) {
    if (deadline.expired()) return false;
    backoff.pause();
  }
  return true;
}

inline void connect(comm::Transport& transport, device::Queue& queue) {
  const auto pending = transport.connect(queue);
  if (pending) CHECK(finish(*pending));
}

/// What `from` sends `to`: different for each pair, nothing for some.
inline Bytes run_bytes(std::uint32_t from, std::uint32_t to) {
  const std::size_t length = (from + to) % 3 == 0 ? 0 : 1000 * from + 77 * to;
  Bytes bytes(length, static_cast<std::byte>('a' + (5 * from + to) % 26));
  std::fill_n(bytes.begin(), length / 3, static_cast<std::byte>('0' + (5 * from + to) % 10));
  return bytes;
}

/// What every second rank broadcasts.
inline Bytes broadcast_bytes(std::uint32_t root) {
  return Bytes(root % 2 == 0 ? 5000 + root : 0, static_cast<std::byte>('A' + root));
}

/// The device memory of one wave among all ranks: runs between all pairs, broadcasts from some.
class Wave {
 public:
  Wave(const core::Place& place, device::Device& device)
      : device_(device), rank_(place.rank), size_(place.size) {
    for (std::uint32_t peer = 0; peer < size_; ++peer) {
      outgoing_.push_back(upload(device, run_bytes(rank_, peer)));
      incoming_.push_back(upload(device, unset(run_bytes(peer, rank_))));
      const Bytes replicated = broadcast_bytes(peer);
      replicated_.push_back(upload(device, peer == rank_ ? replicated : unset(replicated)));
    }
  }

  comm::Exchange exchange() const {
    comm::Exchange exchange;
    for (std::uint32_t peer = 0; peer < size_; ++peer) {
      if (peer != rank_) add(exchange.sends, peer, outgoing_[peer], run_bytes(rank_, peer));
      if (peer != rank_) add(exchange.receives, peer, incoming_[peer], run_bytes(peer, rank_));
      add(exchange.broadcasts, peer, replicated_[peer], broadcast_bytes(peer));
    }
    return exchange;
  }

  bool arrived() const {
    for (std::uint32_t peer = 0; peer < size_; ++peer) {
      if (peer != rank_ && !holds(incoming_[peer], run_bytes(peer, rank_))) return false;
      if (!holds(replicated_[peer], broadcast_bytes(peer))) return false;
    }
    return true;
  }

 private:
  using Memory = std::shared_ptr<std::byte>;

  static Bytes unset(const Bytes& bytes) { return Bytes(bytes.size(), std::byte{'?'}); }

  /// As two messages of different sizes, which must arrive in order.
  static void add(std::vector<comm::Message>& messages, std::uint32_t peer, const Memory& memory,
                  const Bytes& bytes) {
    const std::size_t first = bytes.size() / 3;
    if (first != 0) messages.push_back({peer, memory.get(), first});
    if (!bytes.empty()) messages.push_back({peer, memory.get() + first, bytes.size() - first});
  }

  bool holds(const Memory& memory, const Bytes& expected) const {
    return download(device_, memory.get(), expected.size()) == expected;
  }

  device::Device& device_;
  std::uint32_t rank_;
  std::uint32_t size_;
  std::vector<Memory> outgoing_;  // here and below by peer
  std::vector<Memory> incoming_;
  std::vector<Memory> replicated_;
};

inline void exchanges_runs_and_broadcasts(comm::Transport& transport, const core::Place& place,
                                          device::Device& device) {
  const auto queue = device.make_queue();
  for (int round = 0; round < 3; ++round) {
    const Wave wave(place, device);
    const auto pending = transport.exchange(wave.exchange(), *queue);
    CHECK(finish(*pending));
    CHECK(pending->done());
    CHECK(wave.arrived());
  }
}

/// Every rank packs what it sends to the next one, and waits for nothing before it exchanges.
inline void sends_what_the_queue_has_packed(comm::Transport& transport, const core::Place& place,
                                            device::Device& device) {
  if (place.size == 1) return;
  constexpr std::size_t bytes = 300'000;
  const auto filled_by = [](std::uint32_t rank) {
    return Bytes(bytes, static_cast<std::byte>('a' + rank));
  };
  const std::uint32_t next = (place.rank + 1) % place.size;
  const std::uint32_t previous = (place.rank + place.size - 1) % place.size;
  const auto slab = upload(device, filled_by(place.rank));
  const auto send = upload(device, Bytes(bytes));
  const auto arena = upload(device, Bytes(bytes));
  const auto queue = device.make_queue();
  const auto packer = device.make_packer(*queue);
  PackItem item{.rows = 1, .row_bytes = bytes, .source_stride = bytes, .destination_stride = bytes};
  item.target = PackTarget::pack_buffer;
  comm::Exchange exchange;
  exchange.sends = {{next, send.get(), bytes}};
  exchange.receives = {{previous, arena.get(), bytes}};
  packer->pack({&item, 1}, {slab.get(), arena.get(), send.get()});
  CHECK(finish(*transport.exchange(std::move(exchange), *queue)));
  CHECK((download(device, arena.get(), bytes) == filled_by(previous)));
}

inline void exchanges_after_connecting(comm::Transport& transport, const core::Place& place,
                                       device::Device& device) {
  const auto queue = device.make_queue();
  connect(transport, *queue);
  const Wave wave(place, device);
  CHECK(finish(*transport.exchange(wave.exchange(), *queue)));
  CHECK(wave.arrived());
}

inline void an_empty_exchange_is_done(comm::Transport& transport, device::Device& device) {
  const auto queue = device.make_queue();
  CHECK(finish(*transport.exchange({}, *queue)));
}

/// One rank votes for less than the others, then none, and so on; with data and without.
inline void tells_all_ranks_the_least_vote(comm::Transport& transport, const core::Place& place,
                                           device::Device& device) {
  const auto queue = device.make_queue();
  const std::uint32_t nobody = place.size;
  for (const std::uint32_t lowest : {nobody, place.size - 1, nobody, 0U, 0U, nobody}) {
    for (const bool empty : {false, true}) {
      const Wave wave(place, device);
      comm::Exchange exchange = empty ? comm::Exchange() : wave.exchange();
      exchange.vote = place.rank == lowest ? 3 : 200;
      const auto pending = transport.exchange(std::move(exchange), *queue);
      CHECK(finish(*pending));
      CHECK(pending->least_vote() == (lowest == nobody ? 200 : 3));
      if (!empty) CHECK(wave.arrived());
    }
  }
}

/// Also with nothing to exchange.
inline void ends_no_wave_before_all_have_begun_it(comm::Transport& transport,
                                                  const core::Place& place,
                                                  device::Device& device) {
  constexpr std::chrono::milliseconds delay{300};
  const auto queue = device.make_queue();
  connect(transport, *queue);
  CHECK(finish(*transport.exchange({}, *queue)));
  const auto start = core::Clock::now();
  if (place.rank == 0) std::this_thread::sleep_for(delay);
  CHECK(finish(*transport.exchange({}, *queue)));
  CHECK(core::Clock::now() - start > delay / 2);
}

inline void releases_memory_after_an_exchange(comm::Transport& transport, const core::Place& place,
                                              device::Device& device) {
  const auto queue = device.make_queue();
  const auto memory = std::make_shared<Wave>(place, device);
  comm::Exchange exchange = memory->exchange();
  exchange.keep_alive = memory;
  auto pending = transport.exchange(std::move(exchange), *queue);
  CHECK(finish(*pending));
  CHECK(memory.use_count() > 1);
  pending.reset();
  CHECK(memory.use_count() == 1);
}

/// `device` is what the transport moves data between.
inline void check_exchange_contract(comm::Transport& transport, const core::Place& place,
                                    device::Device& device) {
  exchanges_runs_and_broadcasts(transport, place, device);  // not connected yet
  exchanges_after_connecting(transport, place, device);
  sends_what_the_queue_has_packed(transport, place, device);
  an_empty_exchange_is_done(transport, device);
  tells_all_ranks_the_least_vote(transport, place, device);
  ends_no_wave_before_all_have_begun_it(transport, place, device);
  releases_memory_after_an_exchange(transport, place, device);
}

}  // namespace safeshuffle::testing
