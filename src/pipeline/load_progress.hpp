// Tells the caller how far a load is.
#pragma once

#include <cstdint>
#include <functional>

#include "safeshuffle/options.hpp"
#include "safeshuffle/plan.hpp"

#include "core/deadline.hpp"

namespace safeshuffle::pipeline {

/// Of one load of one rank. Used by the loading thread. Its functions throw what the caller's
/// function does, and bad_alloc.
class LoadProgress {
 public:
  /// `begin`: see Origin. Without `tell`, it does nothing. `plan` and `tell` must outlive it.
  LoadProgress(const Plan& plan, const Progress& begin,
               const std::function<void(const Progress&)>& tell);

  /// A wave is finished.
  void finish(std::uint32_t wave);

  /// Tells if nothing was told for a while.
  void meanwhile();

 private:
  void report();

  const Plan& plan_;
  const std::function<void(const Progress&)>& tell_;
  const std::uint64_t planned_bytes_;  // to be read by all ranks
  const std::uint64_t begin_bytes_;
  std::uint64_t read_bytes_ = 0;  // of those planned, in finished waves
  Progress progress_;
  core::Clock::time_point last_report_;
};

}  // namespace safeshuffle::pipeline
