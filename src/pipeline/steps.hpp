// When the ranks of a load wait for each other.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "core/deadline.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::pipeline {

/// Of one load of one rank. At the end of a step, ranks exchange. Those that read slices need
/// nothing from each other, so their steps have several waves, of about a second together: after
/// each, they learn of failures, and a time-out bounds how far one is behind.
class Steps {
 public:
  using Time = core::Clock::time_point;

  /// `schedule` must outlive it.
  explicit Steps(const plan::Schedule& schedule) : schedule_(schedule) {}

  /// The next step begins with `wave`. `vote`: the least of all ranks' votes, above 0.
  void begin(std::uint32_t wave, std::uint8_t vote, Time now = core::Clock::now()) noexcept {
    waves_ = plan::is_exchanged(schedule_, wave) ? 1 : vote;
    end_ = std::min(wave + waves_, schedule_.waves);
    begun_ = now;
  }

  /// Whether the step ends with this wave: the same on all ranks.
  bool ends_with(std::uint32_t wave) const noexcept { return wave + 1 == end_; }

  /// How many waves of slices this rank will read in a second if they take as long as those of this
  /// step: 1 to 16, and at most twice as many as in this one.
  std::uint8_t vote(Time now = core::Clock::now()) const noexcept {
    const std::chrono::duration<double> elapsed = now - begun_;
    const double in_a_second = waves_ * (std::chrono::seconds(1) / elapsed);
    return static_cast<std::uint8_t>(
        std::clamp(in_a_second, 1.0, std::min(2.0 * waves_, most_waves)));
  }

 private:
  static constexpr double most_waves = 16;

  const plan::Schedule& schedule_;
  std::uint32_t waves_ = 1;
  std::uint32_t end_ = 0;  // the wave after its last
  Time begun_;
};

}  // namespace safeshuffle::pipeline
