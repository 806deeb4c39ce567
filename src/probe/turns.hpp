// Runs of several measurements, taken in turns by all ranks together.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
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
  std::string obstacle;     ///< why the run does not count

  /// Calls what is to be measured.
  template <class Work>
  void measure(const Work& work) {
    begin = core::Clock::now();
    work();
    end = core::Clock::now();
  }
};

/// One thing to measure. Used by one thread.
struct Trial {
  std::string name;
  Measurement::Of of = Measurement::Of::each_rank;
  bool is_time = false;        ///< runs give the time that something takes, not a rate
  bool is_collective = false;  ///< a run is a collective call of its own, which throws on all ranks

  /// Gets ready for a run. Returns why that is not possible, if it is not; the trial then ends, on
  /// all ranks.
  std::function<std::string()> prepare = [] { return std::string(); };

  /// The run; it measures itself.
  std::function<Run()> run;
};

using Trials = std::vector<Trial>;

/// How long and how often.
struct Turns {
  std::uint32_t most_rounds = 1;
  double seconds = 0;  ///< no round begins later; the first always does
};

/// Runs each trial once per round, and as many rounds as `turns` allows. All ranks have the same
/// trials. Collective; the result is the same on all ranks. `nodes`: of the group. Throws what a
/// trial throws on any rank, and TimeoutError.
std::vector<Measurement> take_turns(comm::Control& control, std::uint32_t nodes,
                                    const Trials& trials, const Turns& turns,
                                    const ProbeOptions& options);

/// Pure; `values` is not empty.
Spread spread_of(std::vector<double> values);

}  // namespace safeshuffle::probing
