// Where finished tensors lie.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// The order of tensors in every arena, from the reads: by (wave, reader) of the segment that comes
/// first; within one slab those that are not replicated before those that are, each in the order of
/// the file. So all that a rank sends another in a wave is one contiguous run, and so is what it
/// broadcasts.
std::vector<std::uint32_t> arena_order(const Schedule& schedule);

/// By tensor: its offset in the arena of `rank`, or not_held where the rank has no byte of it.
/// Follows from `schedule.arena_order` and the sizes of the rank's shards alone.
std::vector<std::uint64_t> arena_offsets(const Schedule& schedule, std::uint32_t rank);

}  // namespace safeshuffle::plan
