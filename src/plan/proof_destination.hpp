// Parts 2 to 4 of the proof: moving and writing.
#pragma once

#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// Proves that tensors and runs do not overlap in any arena, that messages match, and that every
/// byte that a rank must hold is written exactly once, with the right stored byte, provided that
/// the slabs are read as `prove_reading` proves. Throws PlanError.
void prove_writing(const Schedule& schedule);

}  // namespace safeshuffle::plan
