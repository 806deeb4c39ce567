// Attributes the time of the loading thread to phases.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "safeshuffle/report.hpp"

#include "core/deadline.hpp"
#include "core/process.hpp"

namespace safeshuffle::pipeline {

/// Always in exactly one phase, so that the phases add up to the total without pauses. Not
/// thread-safe.
class PhaseClock {
 public:
  PhaseClock(Phase first, bool trace)
      : trace_(trace),
        phase_(first),
        start_(core::Clock::now()),
        since_(start_),
        cpu_since_(core::cpu_seconds()) {}

  /// Switches to a phase, unless it is the current one; returns the previous phase.
  Phase enter(Phase next) {
    if (next != phase_) settle();
    return std::exchange(phase_, next);
  }

  /// Excludes the time from `pause` to `resume`, which continues in the same phase.
  void pause() {
    settle();
    cpu_seconds_ = cpu_seconds();
  }
  void resume() noexcept {
    since_ = core::Clock::now();
    cpu_since_ = core::cpu_seconds();
  }

  /// Seconds by phase, up to now.
  const std::array<double, phase_count>& read() {
    settle();
    return seconds_;
  }

  /// Seconds of all phases, up to now.
  double elapsed() {
    const auto& seconds = read();
    return std::accumulate(seconds.begin(), seconds.end(), 0.0);
  }

  /// CPU time of all threads of the process, up to now.
  double cpu_seconds() const noexcept { return cpu_seconds_ + core::cpu_seconds() - cpu_since_; }

  /// Whether spans are recorded.
  bool traces() const noexcept { return trace_; }

  /// If tracing, records what was at work beside the loading thread.
  void note(Span::Track track, std::string name, core::Clock::time_point begin,
            core::Clock::time_point end) {
    if (!trace_) return;
    const double seconds = std::chrono::duration<double>(end - begin).count();
    spans_.push_back(
        {track, std::move(name), std::chrono::duration<double>(begin - start_).count(), seconds});
  }

  /// If tracing, everything so far.
  const std::vector<Span>& spans() const noexcept { return spans_; }

 private:
  /// Accounts for the current phase up to now.
  void settle() {
    const core::Clock::time_point now = core::Clock::now();
    if (trace_) note(Span::Track::phases, std::string(name(phase_)), since_, now);
    seconds_[static_cast<std::size_t>(phase_)] +=
        std::chrono::duration<double>(now - since_).count();
    since_ = now;
  }

  bool trace_;
  std::array<double, phase_count> seconds_{};
  std::vector<Span> spans_;
  Phase phase_;
  core::Clock::time_point start_;
  core::Clock::time_point since_;
  double cpu_seconds_ = 0;  // before the last pause
  double cpu_since_;
};

/// Switches to `phase` for the duration of a scope, then back.
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
