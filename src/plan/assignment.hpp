// Assigns reads to ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// What each rank reads, in reading order, by `schedule.assignment`: every segment of
/// every tensor that is read belongs to one rank. Waves are left at 0. Throws PlanError if a tensor
/// has too many segments to count.
std::vector<std::vector<Read>> assign(const Schedule& schedule);

}  // namespace safeshuffle::plan
