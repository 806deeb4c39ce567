// Layout of the arenas.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// The order of tensors in every arena, derived from the reads: by (wave, reader) of the first
/// segment; within one slab, shards before replicated tensors, both in file order. So everything
/// that a rank sends another in a wave is one contiguous run, and so is what it broadcasts.
std::vector<std::uint32_t> arena_order(const Schedule& schedule);

/// By tensor: its offset in the arena of `rank`, or not_held if the rank has no byte of it. Depends
/// only on `schedule.arena_order` and the sizes of the rank's shards.
std::vector<std::uint64_t> arena_offsets(const Schedule& schedule, std::uint32_t rank);

}  // namespace safeshuffle::plan
