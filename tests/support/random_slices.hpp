// Plans of which some tensors are sliced, whether that makes sense or not.
#pragma once

#include <cstdint>
#include <vector>

#include "safeshuffle/plan.hpp"

#include "plan/assignment.hpp"
#include "plan/geometry.hpp"
#include "plan/schedule.hpp"
#include "support/pseudo_random.hpp"

namespace safeshuffle::testing {

/// The plan's schedule, with each geometry's tensors sliced by a toss of a coin.
inline plan::Schedule with_random_slices(const Plan& plan, std::uint32_t seed) {
  plan::Schedule schedule = plan.schedule();
  schedule.assignment = Assignment::mixed;
  const plan::Geometries geometries = plan::find_geometries(schedule);
  PseudoRandom random(seed);
  std::vector<bool> sliced;
  for (std::size_t i = 0; i < geometries.example.size(); ++i)
    sliced.push_back(random.below(2) == 0);
  for (std::size_t i = 0; i < schedule.sliced.size(); ++i) {
    schedule.sliced[i] = sliced[geometries.of_tensor[i]];
  }
  plan::fill(schedule, geometries, schedule.window);
  return schedule;
}

}  // namespace safeshuffle::testing
