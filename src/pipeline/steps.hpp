// When the ranks of a load wait for each other.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "core/deadline.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::pipeline {

/// Of one load of one rank. Each exchange ends a step. Ranks that read slices need nothing from
/// each other: they exchange only what they vote for, about every second, so that they learn of
/// failures, and a time-out bounds how far one is behind.
class Steps {
 public:
  /// `schedule` must outlive it.
  explicit Steps(const plan::Schedule& schedule) : schedule_(schedule) {}

  /// Whether the step ends with this wave: the same on all ranks.
  bool end_with(std::uint32_t wave) const noexcept { return wave == end_; }

  /// How many waves of slices this rank will read in a second if they take as long as those of this
  /// step; at least 1, and at most twice as many as in this one.
  std::uint8_t vote() const noexcept {
    const std::chrono::duration<double> elapsed = core::Clock::now() - begun_;
    const double in_a_second = waves_ * (std::chrono::seconds(1) / elapsed);
    return static_cast<std::uint8_t>(
        std::clamp(in_a_second, 1.0, std::min(2.0 * waves_, most_waves)));
  }

  /// The next step begins with `wave`. `vote`: the least of all ranks' votes.
  void begin(std::uint32_t wave, std::uint8_t vote) noexcept {
    waves_ = plan::is_exchanged(schedule_, wave) ? 1 : vote;
    end_ = std::min(wave + waves_, schedule_.waves) - 1;
    begun_ = core::Clock::now();
  }

 private:
  static constexpr double most_waves = 16;

  const plan::Schedule& schedule_;
  std::uint32_t waves_ = 1;
  std::uint32_t end_ = 0;  // its last wave
  core::Clock::time_point begun_ = core::Clock::now();
};

}  // namespace safeshuffle::pipeline
