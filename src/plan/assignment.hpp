// Assigns reads to ranks, and fills in a schedule accordingly.
#pragma once

#include <cstdint>

#include "plan/geometry.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// Once tensors are cut and `schedule.assignment` is set: fills in everything that depends on the
/// window or the assignment: reads, waves, the order of arenas, and summaries. Replaces what was
/// there. Throws PlanError if segments or waves cannot be counted.
void fill(Schedule& schedule, const Geometries& geometries, std::uint64_t window);

}  // namespace safeshuffle::plan
