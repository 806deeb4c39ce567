// Arena layout and the totals of every rank.
#pragma once

#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// Fills `schedule.arena_offsets` and `schedule.ranks` from the rest of the schedule.
///
/// Rank d's arena is laid out in (wave, reader) order; what one reader contributes in one wave is
/// one region of its sharded tensors followed by one region of its replicated tensors. So all that
/// a rank sends another in a wave is one contiguous run, and so is what it broadcasts. A tensor
/// that comes in chunks has its place reserved when its first chunk comes.
void layout_arenas(Schedule& schedule);

}  // namespace safeshuffle::plan
