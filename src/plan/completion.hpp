// What is complete after which wave.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/schedule.hpp"

namespace safeshuffle::plan {

struct CompleteTarget {
  std::uint32_t wave = 0;
  std::uint32_t target = 0;
};

struct CompleteLayer {
  std::uint32_t wave = 0;
  std::uint64_t layer = 0;  ///< its number
};

/// What one rank has after each wave, computed once in time and memory proportional to tensors +
/// targets. Immutable. A target is complete after the wave in which the last of its stored tensors
/// ends; a layer, when all targets are that take anything from its tensors, and in layer order the
/// first one not before what precedes it. Both waves are the same on all ranks, which end a wave of
/// slices at different times.
class Completion {
 public:
  Completion(const Schedule& schedule, std::uint32_t rank);

  /// The targets, of those that the rank holds, that are complete after `wave` and were not before;
  /// ascending. Those without bytes belong to wave 0.
  std::span<const CompleteTarget> targets(std::uint32_t wave) const;

  /// Likewise, the layers of the model that any rank needs; ascending.
  std::span<const CompleteLayer> layers(std::uint32_t wave) const;

 private:
  std::vector<CompleteTarget> targets_;  // ordered by wave
  std::vector<CompleteLayer> layers_;
};

}  // namespace safeshuffle::plan
