// What every control must do. Collective: all ranks run it together, on controls of one group.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "safeshuffle/options.hpp"

#include "comm/control/agreement.hpp"
#include "comm/control/control.hpp"
#include "support/catalogs.hpp"
#include "support/catch.hpp"

namespace safeshuffle::testing {

inline core::Deadline control_patience() {
  return core::Deadline(std::chrono::seconds(30));
}

inline void gathers_texts_of_any_length(comm::Control& control, std::size_t longest = 20'000) {
  const auto text_of = [](std::uint32_t rank, std::size_t scale) {
    return std::string(rank % 2 == 0 ? 0 : rank * scale, static_cast<char>('a' + rank));
  };
  for (const std::size_t scale : {std::size_t{0}, std::size_t{1}, longest}) {
    const auto all = control.all_gather(text_of(control.rank(), scale), control_patience());
    REQUIRE(all.size() == control.size());
    for (std::uint32_t rank = 0; rank < all.size(); ++rank) {
      CHECK(all[rank] == text_of(rank, scale));
    }
  }
}

inline void agrees_on_the_lowest_failing_rank(comm::Control& control) {
  const std::uint32_t first = control.size() / 2;  // this rank and all after it fail
  std::optional<ErrorRecord> seen;
  try {
    comm::agree_on(control, control_patience().limit(), [&]() -> std::string {
      if (control.rank() < first) return "fine";
      throw FormatError(ErrorRecord{.code = 7,
                                    .file = numbered("file", control.rank()),
                                    .tensor = "t",
                                    .offset = control.rank(),
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

inline void agrees_on_success(comm::Control& control) {
  const auto all = comm::agree_on(control, control_patience().limit(),
                                  [&] { return numbered("rank", control.rank()); });
  REQUIRE(all.size() == control.size());
  CHECK(all.back() == numbered("rank", control.size() - 1));
}

/// The last rank's step takes longer than the deadline.
inline void waits_for_a_slow_rank(comm::Control& control) {
  constexpr std::chrono::milliseconds short_patience{1000};
  const auto all =
      comm::agree_with_heartbeat(control, short_patience, [&](const comm::Heartbeat& beat) {
        if (control.rank() + 1 < control.size()) return std::string("quick");
        const core::Deadline longer(short_patience * 5 / 4);
        while (!longer.expired()) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          beat();
        }
        return std::string("slow");
      });
  CHECK(all.back() == "slow");
  CHECK(all.size() == control.size());
  if (control.size() > 1) CHECK(all.front() == "quick");
}

/// The last rank's computation takes longer than the deadline, and does nothing else meanwhile.
inline void waits_for_a_long_computation(comm::Control& control) {
  constexpr std::chrono::milliseconds short_patience{1000};
  const auto all = comm::agree_on_computation(control, short_patience, [&] {
    const bool last = control.rank() + 1 == control.size();
    if (last) std::this_thread::sleep_for(short_patience * 2);
    return numbered("rank", control.rank());
  });
  REQUIRE(all.size() == control.size());
  CHECK(all.front() == numbered("rank", 0));
  CHECK(all.back() == numbered("rank", control.size() - 1));
}

/// Neither the rank that is cancelled while it computes, nor the others, lose each other.
inline void cancels_a_long_computation(comm::Control& control) {
  constexpr std::chrono::milliseconds short_patience{1000};
  const bool last = control.rank() + 1 == control.size();
  const auto cancel = std::make_shared<CancelFlag>(0);
  control.set_cancel(cancel);
  std::optional<ErrorRecord> seen;
  try {
    comm::agree_on_computation(control, short_patience, [&]() -> std::string {
      if (!last) return {};
      *cancel = 5;
      std::this_thread::sleep_for(short_patience * 2);
      return {};
    });
  } catch (const CancelledError& error) {
    seen = error.record();
  }
  control.set_cancel(nullptr);
  REQUIRE(seen);
  CHECK(seen->code == 5);
  CHECK(seen->rank == static_cast<std::int32_t>(control.size() - 1));
}

/// Also if a rank is out of memory, or is still busy with its own part.
inline void agrees_on_what_a_computation_throws(comm::Control& control) {
  std::optional<ErrorRecord> seen;
  try {
    constexpr std::chrono::milliseconds short_patience{1000};
    comm::agree_on_computation(control, short_patience, [&]() -> std::string {
      if (control.rank() == 0) throw std::bad_alloc();
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
inline void agrees_on_an_error_meanwhile(comm::Control& control) {
  if (control.size() == 1) return;
  bool finished = false;
  bool thrown = false;
  try {
    constexpr std::chrono::seconds some_patience{2};
    comm::agree_with_heartbeat(control, some_patience,
                               [&](const comm::Heartbeat& beat) -> std::string {
                                 if (control.rank() == 0) throw IoError("broken");
                                 const core::Deadline enough(std::chrono::seconds(300));
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

/// Takes seconds.
inline void check_control_contract(comm::Control& control) {
  gathers_texts_of_any_length(control, 700'000);
  agrees_on_the_lowest_failing_rank(control);
  agrees_on_success(control);
  waits_for_a_slow_rank(control);
  waits_for_a_long_computation(control);
  cancels_a_long_computation(control);
  agrees_on_what_a_computation_throws(control);
  agrees_on_success(control);
  agrees_on_an_error_meanwhile(control);
  agrees_on_success(control);
}

}  // namespace safeshuffle::testing
