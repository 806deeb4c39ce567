// Attributes the time of the loading thread to phases.
#pragma once

#include <array>
#include <utility>

#include "safeshuffle/report.hpp"

#include "core/deadline.hpp"

namespace safeshuffle::pipeline {

/// Always in exactly one phase, so that the phases add up to the total. Not thread-safe.
class PhaseClock {
 public:
  explicit PhaseClock(Phase first) : phase_(first), since_(core::Clock::now()) {}

  /// Ends the current phase, starts another; returns the one that ended.
  Phase enter(Phase next) {
    const core::Clock::time_point now = core::Clock::now();
    seconds_[static_cast<std::size_t>(phase_)] +=
        std::chrono::duration<double>(now - since_).count();
    since_ = now;
    return std::exchange(phase_, next);
  }

  /// Seconds by phase, up to now.
  const std::array<double, phase_count>& read() {
    enter(phase_);
    return seconds_;
  }

 private:
  std::array<double, phase_count> seconds_{};
  Phase phase_;
  core::Clock::time_point since_;
};

/// In `phase` for the length of a scope, then back.
class PhaseScope {
 public:
  PhaseScope(PhaseClock& clock, Phase phase) : clock_(clock), before_(clock.enter(phase)) {}
  ~PhaseScope() { clock_.enter(before_); }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  PhaseClock& clock_;
  Phase before_;
};

}  // namespace safeshuffle::pipeline
