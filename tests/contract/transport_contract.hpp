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
#include "support/test_queue.hpp"

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

/// Different for each sender and receiver, of 0 bytes for some.
inline std::string run_text(std::uint32_t from, std::uint32_t to) {
  const std::size_t length = (from + to) % 3 == 0 ? 0 : 1000 * from + 77 * to;
  return std::string(length, static_cast<char>('a' + (5 * from + to) % 26));
}

inline std::string numbered(std::string text, std::uint32_t number) {
  return text.append(std::to_string(number));
}

inline std::byte* as_bytes(std::string& text) {
  return reinterpret_cast<std::byte*>(text.data());
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

/// The memory of one wave among all ranks: runs between all pairs, broadcasts from every second
/// rank.
struct Wave {
  explicit Wave(comm::Transport& transport) : rank(transport.rank()), size(transport.size()) {
    for (std::uint32_t peer = 0; peer < size; ++peer) {
      outgoing.push_back(run_text(rank, peer));
      incoming.emplace_back(run_text(peer, rank).size(), '?');
      replicated.push_back(broadcast_text(peer));
      if (peer != rank) std::ranges::fill(replicated.back(), '?');
    }
  }

  static std::string broadcast_text(std::uint32_t root) {
    return std::string(root % 2 == 0 ? 5000 + root : 0, static_cast<char>('A' + root));
  }

  comm::Exchange exchange() {
    comm::Exchange exchange;
    for (std::uint32_t peer = 0; peer < size; ++peer) {
      if (peer != rank) add(exchange.sends, peer, outgoing[peer]);
      if (peer != rank) add(exchange.receives, peer, incoming[peer]);
      add(exchange.broadcasts, peer, replicated[peer]);
    }
    return exchange;
  }

  bool arrived() const {
    for (std::uint32_t peer = 0; peer < size; ++peer) {
      if (peer != rank && incoming[peer] != run_text(peer, rank)) return false;
      if (replicated[peer] != broadcast_text(peer)) return false;
    }
    return true;
  }

  static void add(std::vector<comm::Message>& messages, std::uint32_t peer, std::string& text) {
    if (!text.empty()) messages.push_back({peer, as_bytes(text), text.size()});
  }

  std::uint32_t rank;
  std::uint32_t size;
  std::vector<std::string> outgoing;
  std::vector<std::string> incoming;
  std::vector<std::string> replicated;
};

inline void exchanges_runs_and_broadcasts(comm::Transport& transport) {
  TestQueue queue;
  for (int round = 0; round < 3; ++round) {
    Wave wave(transport);
    queue.busy_polls = round * static_cast<int>(transport.rank());
    const auto pending = transport.exchange(wave.exchange(), queue);
    CHECK(finish(*pending));
    CHECK(pending->done());
    CHECK(wave.arrived());
  }
}

inline void sends_nothing_while_the_queue_is_busy(comm::Transport& transport) {
  TestQueue queue;
  queue.busy_polls = 1000;
  Wave wave(transport);
  const auto pending = transport.exchange(wave.exchange(), queue);
  bool early = false;
  while (queue.busy_polls > 1) early |= pending->done();
  CHECK(finish(*pending));
  CHECK_FALSE(early);
  CHECK(wave.arrived());
}

inline void an_empty_exchange_is_done(comm::Transport& transport) {
  TestQueue queue;
  CHECK(finish(*transport.exchange({}, queue)));
  CHECK(transport.all_gather("", patience()).size() == transport.size());
}

inline void releases_memory_after_an_exchange(comm::Transport& transport) {
  TestQueue queue;
  const auto memory = std::make_shared<Wave>(transport);
  comm::Exchange exchange = memory->exchange();
  exchange.keep_alive = memory;
  auto pending = transport.exchange(std::move(exchange), queue);
  CHECK(finish(*pending));
  CHECK(memory.use_count() > 1);
  pending.reset();
  CHECK(memory.use_count() == 1);
}

inline void agrees_on_the_lowest_failing_rank(comm::Transport& transport) {
  const std::uint32_t first = transport.size() / 2;  // this rank and all after it fail
  std::optional<ErrorRecord> seen;
  try {
    comm::agree_on(transport, patience(), [&]() -> std::string {
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
  const auto all =
      comm::agree_on(transport, patience(), [&] { return numbered("rank", transport.rank()); });
  REQUIRE(all.size() == transport.size());
  CHECK(all.back() == numbered("rank", transport.size() - 1));
}

/// Whether the last rank's step may take longer than the deadline while it beats.
inline bool waits_for_a_slow_rank(comm::Transport& transport, int rounds) {
  const core::Deadline short_patience(std::chrono::milliseconds(500));
  const auto all = comm::agree_on_long(transport, short_patience, [&](const comm::Beat& beat) {
    if (transport.rank() + 1 < transport.size()) return std::string("quick");
    for (int round = 0; round < rounds; ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      beat();
    }
    return std::string("slow");
  });
  return all.back() == "slow" && all.size() == transport.size();
}

/// The slow rank learns of it before its own step is over.
inline void agrees_on_an_error_meanwhile(comm::Transport& transport) {
  if (transport.size() == 1) return;
  bool finished = false;
  bool thrown = false;
  try {
    const core::Deadline some_patience(std::chrono::seconds(2));
    comm::agree_on_long(transport, some_patience, [&](const comm::Beat& beat) -> std::string {
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

/// Runs the whole suite as sections of the current test case.
inline void check_transport_contract(comm::Transport& transport) {
  SECTION("all_gather") {
    gathers_texts_of_any_length(transport);
  }
  SECTION("exchange") {
    exchanges_runs_and_broadcasts(transport);
  }
  SECTION("order after the queue") {
    sends_nothing_while_the_queue_is_busy(transport);
  }
  SECTION("empty exchange") {
    an_empty_exchange_is_done(transport);
  }
  SECTION("memory") {
    releases_memory_after_an_exchange(transport);
  }
  SECTION("agreement on an error") {
    agrees_on_the_lowest_failing_rank(transport);
  }
  SECTION("agreement on success") {
    agrees_on_success(transport);
  }
  SECTION("agreement after a long step") {
    CHECK(waits_for_a_slow_rank(transport, 50));
    agrees_on_success(transport);
  }
  SECTION("agreement on an error during a long step") {
    agrees_on_an_error_meanwhile(transport);
    agrees_on_success(transport);
  }
}

}  // namespace safeshuffle::testing
