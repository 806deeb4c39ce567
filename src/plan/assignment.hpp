// Assigns reads to ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/geometry.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// What each rank reads of tensors that are exchanged, in reading order, by `schedule.assignment`:
/// every segment of each belongs to one rank. Waves are left at 0. Throws PlanError if a tensor has
/// too many segments to count.
std::vector<std::vector<Read>> assign(const Schedule& schedule);

/// What all ranks read: the tensors that are sliced. Likewise.
std::vector<Read> assign_slices(const Schedule& schedule, const Geometries& geometries);

}  // namespace safeshuffle::plan
