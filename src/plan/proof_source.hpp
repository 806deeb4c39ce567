// Part 1 of the proof: reading.
#pragma once

#include "plan/geometry.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// Proves that every needed stored byte is read exactly once, if `sliced` by each rank that keeps
/// it, into its own place in a slab.
/// Throws PlanError.
void prove_reading(const Schedule& schedule, const Geometries& geometries);

}  // namespace safeshuffle::plan
