// What every transport must do. Collective: all ranks run it together, on transports of one group.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/agreement.hpp"
#include "comm/transport.hpp"
#include "core/backoff.hpp"
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

inline std::string numbered(std::string text, std::uint32_t number) {
  return text.append(std::to_string(number));
}

inline void gathers_texts_of_any_length(comm::Transport& transport) {
  const auto text_of = [](std::uint32_t rank, std::size_t scale) {
    return std::string(rank % 2 == 0 ? 0 : rank * scale, static_cast<char>('a' + rank));
  };
  for (const std::size_t scale : {std::size_t{0}, std::size_t{1}, std::size_t{20'000}}) {
    const auto all = transport.all_gather(text_of(transport.rank(), scale), patience());
    REQUIRE(all.size() == transport.size());
    for (std::uint32_t rank = 0; rank < all.size(); ++rank) {
      CHECK(all[rank] == text_of(rank, scale));
    }
  }
}

/// What `from` sends `to`: different for each pair, nothing for some.
inline Bytes run_bytes(std::uint32_t from, std::uint32_t to) {
  const std::size_t length = (from + to) % 3 == 0 ? 0 : 1000 * from + 77 * to;
  return Bytes(length, static_cast<std::byte>('a' + (5 * from + to) % 26));
}

/// What every second rank broadcasts.
inline Bytes broadcast_bytes(std::uint32_t root) {
  return Bytes(root % 2 == 0 ? 5000 + root : 0, static_cast<std::byte>('A' + root));
}

/// The device memory of one wave among all ranks: runs between all pairs, broadcasts from some.
class Wave {
 public:
  Wave(const comm::Transport& transport, device::Device& device)
      : device_(device), rank_(transport.rank()), size_(transport.size()) {
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

  static void add(std::vector<comm::Message>& messages, std::uint32_t peer, const Memory& memory,
                  const Bytes& bytes) {
    if (!bytes.empty()) messages.push_back({peer, memory.get(), bytes.size()});
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

inline void exchanges_runs_and_broadcasts(comm::Transport& transport, device::Device& device) {
  const auto queue = device.make_queue();
  for (int round = 0; round < 3; ++round) {
    const Wave wave(transport, device);
    const auto pending = transport.exchange(wave.exchange(), *queue);
    CHECK(finish(*pending));
    CHECK(pending->done());
    CHECK(wave.arrived());
  }
}

/// Every rank packs what it sends to the next one, and waits for nothing before it exchanges.
inline void sends_what_the_queue_has_packed(comm::Transport& transport, device::Device& device) {
  if (transport.size() == 1) return;
  constexpr std::size_t bytes = 3'000'000;
  const auto filled_by = [](std::uint32_t rank) {
    return Bytes(bytes, static_cast<std::byte>('a' + rank));
  };
  const std::uint32_t next = (transport.rank() + 1) % transport.size();
  const std::uint32_t previous = (transport.rank() + transport.size() - 1) % transport.size();
  const auto slab = upload(device, filled_by(transport.rank()));
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

inline void exchanges_after_connecting(comm::Transport& transport, device::Device& device) {
  const auto queue = device.make_queue();
  CHECK_NOTHROW(transport.connect(*queue, patience()));
  const Wave wave(transport, device);
  CHECK(finish(*transport.exchange(wave.exchange(), *queue)));
  CHECK(wave.arrived());
}

inline void an_empty_exchange_is_done(comm::Transport& transport, device::Device& device) {
  const auto queue = device.make_queue();
  CHECK(finish(*transport.exchange({}, *queue)));
  CHECK(transport.all_gather("", patience()).size() == transport.size());
}

/// One rank fails, then none, and so on; with data to exchange and without.
inline void tells_all_ranks_that_one_has_failed(comm::Transport& transport,
                                                device::Device& device) {
  const auto queue = device.make_queue();
  const std::uint32_t nobody = transport.size();
  for (const std::uint32_t failing : {nobody, transport.size() - 1, nobody, 0U, 0U, nobody}) {
    for (const bool empty : {false, true}) {
      const Wave wave(transport, device);
      comm::Exchange exchange = empty ? comm::Exchange() : wave.exchange();
      exchange.failed = transport.rank() == failing;
      const auto pending = transport.exchange(std::move(exchange), *queue);
      CHECK(finish(*pending));
      CHECK(pending->failed() == (failing != nobody));
      if (!empty) CHECK(wave.arrived());
    }
  }
}

/// Also with nothing to exchange.
inline void ends_no_wave_before_all_have_begun_it(comm::Transport& transport,
                                                  device::Device& device) {
  constexpr std::chrono::milliseconds delay{300};
  const auto queue = device.make_queue();
  transport.connect(*queue, patience());
  transport.all_gather("", patience());
  const auto start = core::Clock::now();
  if (transport.rank() == 0) std::this_thread::sleep_for(delay);
  CHECK(finish(*transport.exchange({}, *queue)));
  CHECK(core::Clock::now() - start > delay / 2);
}

inline void releases_memory_after_an_exchange(comm::Transport& transport, device::Device& device) {
  const auto queue = device.make_queue();
  const auto memory = std::make_shared<Wave>(transport, device);
  comm::Exchange exchange = memory->exchange();
  exchange.keep_alive = memory;
  auto pending = transport.exchange(std::move(exchange), *queue);
  CHECK(finish(*pending));
  CHECK(memory.use_count() > 1);
  pending.reset();
  CHECK(memory.use_count() == 1);
}

inline void agrees_on_the_lowest_failing_rank(comm::Transport& transport) {
  const std::uint32_t first = transport.size() / 2;  // this rank and all after it fail
  std::optional<ErrorRecord> seen;
  try {
    comm::agree_on(transport, patience().limit(), [&]() -> std::string {
      if (transport.rank() < first) return "fine";
      throw FormatError(ErrorRecord{.code = 7,
                                    .file = numbered("file", transport.rank()),
                                    .tensor = "t",
                                    .offset = transport.rank(),
                                    .cause = "bad"});
    });
  } catch (const FormatError& error) {
    seen = error.record();
  }
  REQUIRE(seen);
  CHECK(seen->rank == static_cast<std::int32_t>(first));
  CHECK(seen->file == numbered("file", first));
  CHECK(seen->offset == first);
  CHECK(seen->code == 7);
}

inline void agrees_on_success(comm::Transport& transport) {
  const auto all = comm::agree_on(transport, patience().limit(),
                                  [&] { return numbered("rank", transport.rank()); });
  REQUIRE(all.size() == transport.size());
  CHECK(all.back() == numbered("rank", transport.size() - 1));
}

/// The last rank's step takes longer than the deadline.
inline void waits_for_a_slow_rank(comm::Transport& transport) {
  constexpr std::chrono::milliseconds short_patience{1000};
  const auto all =
      comm::agree_with_heartbeat(transport, short_patience, [&](const comm::Heartbeat& beat) {
        if (transport.rank() + 1 < transport.size()) return std::string("quick");
        const core::Deadline longer(short_patience * 5 / 4);
        while (!longer.expired()) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          beat();
        }
        return std::string("slow");
      });
  CHECK(all.back() == "slow");
  CHECK(all.size() == transport.size());
  if (transport.size() > 1) CHECK(all.front() == "quick");
}

/// The last rank's computation takes longer than the deadline, and does nothing else meanwhile.
inline void waits_for_a_long_computation(comm::Transport& transport) {
  constexpr std::chrono::milliseconds short_patience{1000};
  const auto all = comm::agree_on_computation(transport, short_patience, [&] {
    const bool last = transport.rank() + 1 == transport.size();
    if (last) std::this_thread::sleep_for(short_patience * 2);
    return numbered("rank", transport.rank());
  });
  REQUIRE(all.size() == transport.size());
  CHECK(all.front() == numbered("rank", 0));
  CHECK(all.back() == numbered("rank", transport.size() - 1));
}

/// Also if a rank is out of memory, or is still busy with its own part.
inline void agrees_on_what_a_computation_throws(comm::Transport& transport) {
  std::optional<ErrorRecord> seen;
  try {
    constexpr std::chrono::milliseconds short_patience{1000};
    comm::agree_on_computation(transport, short_patience, [&]() -> std::string {
      if (transport.rank() == 0) throw std::bad_alloc();
      std::this_thread::sleep_for(short_patience / 2);
      return {};
    });
  } catch (const MemoryError& error) {
    seen = error.record();
  }
  REQUIRE(seen);
  CHECK(seen->rank == 0);
}

/// The slow rank learns of it before its own step is over.
inline void agrees_on_an_error_meanwhile(comm::Transport& transport) {
  if (transport.size() == 1) return;
  bool finished = false;
  bool thrown = false;
  try {
    constexpr std::chrono::seconds some_patience{2};
    comm::agree_with_heartbeat(transport, some_patience,
                               [&](const comm::Heartbeat& beat) -> std::string {
                                 if (transport.rank() == 0) throw IoError("broken");
                                 const core::Deadline enough(std::chrono::seconds(60));
                                 while (!enough.expired()) beat();
                                 finished = true;
                                 return {};
                               });
  } catch (const IoError& error) {
    thrown = error.record().rank == 0 && error.record().cause == "broken";
  }
  CHECK(thrown);
  CHECK_FALSE(finished);
}

/// What moves data, on one transport. `device` is what it moves between.
inline void check_exchange_contract(comm::Transport& transport, device::Device& device) {
  gathers_texts_of_any_length(transport);
  exchanges_runs_and_broadcasts(transport, device);  // not connected yet
  exchanges_after_connecting(transport, device);
  sends_what_the_queue_has_packed(transport, device);
  an_empty_exchange_is_done(transport, device);
  tells_all_ranks_that_one_has_failed(transport, device);
  ends_no_wave_before_all_have_begun_it(transport, device);
  releases_memory_after_an_exchange(transport, device);
}

/// What ranks agree on, and how long they wait for each other; it takes seconds.
inline void check_agreement_contract(comm::Transport& transport) {
  agrees_on_the_lowest_failing_rank(transport);
  agrees_on_success(transport);
  waits_for_a_slow_rank(transport);
  waits_for_a_long_computation(transport);
  agrees_on_what_a_computation_throws(transport);
  agrees_on_success(transport);
  agrees_on_an_error_meanwhile(transport);
  agrees_on_success(transport);
}

/// Both, on one transport: making one over NCCL takes seconds where ranks share a GPU.
inline void check_transport_contract(comm::Transport& transport, device::Device& device) {
  check_exchange_contract(transport, device);
  check_agreement_contract(transport);
}

}  // namespace safeshuffle::testing
