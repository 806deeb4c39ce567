// The proof checker: from a schedule alone, that the load it describes is right.
#pragma once

#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// Proves that
///  1. every needed stored byte is read exactly once, into a place of a slab of its own;
///  2. tensors, and runs, do not overlap in any arena;
///  3. every send has the receive that matches it, and all ranks list the same broadcasts;
///  4. every byte that a rank must hold (by its placement alone) is written exactly once, with the
///     stored byte that the placement says.
/// It looks at the pack items and messages themselves, not at how they were computed. Throws
/// PlanError naming the first tensor or wave that fails.
void prove(const Schedule& schedule);

}  // namespace safeshuffle::plan
