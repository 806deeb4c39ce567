// The totals of every rank.
#pragma once

#include <cstdint>

#include "plan/geometry.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// Fills `schedule.ranks` from the rest of the schedule, by geometries instead of tensors × ranks.
/// Sizes of memory are exact, or less than one page (slab) or one segment (pack buffer) too large.
void summarize(Schedule& schedule, const Geometries& geometries);

/// What all ranks read, once that is known.
std::uint64_t read_bytes(const Schedule& schedule);

}  // namespace safeshuffle::plan
