// Runs of several measurements, taken in turns by all ranks together.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "safeshuffle/probe.hpp"

#include "comm/control/control.hpp"
#include "core/deadline.hpp"

namespace safeshuffle::probing {

/// What one rank did in one run.
struct Run {
  std::uint64_t bytes = 0;
  core::Clock::time_point begin{};  ///< of what is measured; the ranks of a node have one clock
  core::Clock::time_point end{};
  std::uint32_t times = 1;  ///< how often the rank did that of which the time is measured
  std::optional<Residency> residency;
  std::string obstacle;  ///< why the run does not count

  /// Calls what is to be measured.
  template <class Work>
  void measure(const Work& work) {
    begin = core::Clock::now();
    work();
    end = core::Clock::now();
  }
};

/// One thing to measure. Used by one thread.
class Trial {
 public:
  Trial(std::string name, Measurement::Of of) : name_(std::move(name)), of_(of) {}
  virtual ~Trial() = default;
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  const std::string& name() const noexcept { return name_; }
  Measurement::Of of() const noexcept { return of_; }

  /// Whether runs give the time that something takes, not a rate.
  virtual bool is_time() const noexcept { return false; }

  /// Whether a run is a collective call of its own, which throws on all ranks.
  virtual bool is_collective() const noexcept { return false; }

  /// Whether fewer cached bytes than the sample has are what should not be.
  virtual bool is_warm() const noexcept { return false; }

  /// Gets ready for a run. Returns why that is not possible, if it is not; the trial then ends, on
  /// all ranks.
  virtual std::string prepare() { return {}; }

  /// The run; it measures itself.
  virtual Run run() = 0;

 private:
  const std::string name_;
  const Measurement::Of of_;
};

using Trials = std::vector<std::unique_ptr<Trial>>;

/// How long and how often.
struct Turns {
  std::uint32_t most_rounds = 1;
  double seconds = 0;  ///< no round begins later; the first always does
};

/// Runs each trial once per round, and as many rounds as `turns` allows. All ranks have the same
/// trials. Collective; the result is the same on all ranks. `nodes`: of the group. Throws what a
/// trial throws on any rank, and TimeoutError.
std::vector<Measurement> take_turns(comm::Control& control, std::uint32_t nodes, Trials& trials,
                                    const Turns& turns, const ProbeOptions& options);

/// Pure; `values` is not empty.
Spread spread_of(std::vector<double> values);

}  // namespace safeshuffle::probing
