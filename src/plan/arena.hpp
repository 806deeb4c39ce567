// Layout of the arenas.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// The order of targets in every arena, derived from the reads. First those that are received in
/// place, by (wave, reader) of the first segment; within one slab, shards before replicated
/// tensors, both in the order of the slab. So everything that a rank sends another in a wave is one
/// contiguous run, and so is what it broadcasts. Then those that are unpacked from the landing
/// buffer. None in lent memory.
std::vector<std::uint32_t> arena_order(const Schedule& schedule);

/// By target: its offset in the arena of `rank`, or not_held if the rank has no byte of it. Depends
/// only on `schedule.arena_order` and the sizes of the rank's shards.
std::vector<std::uint64_t> arena_offsets(const Schedule& schedule, std::uint32_t rank);

/// By tensor: where the rank's share of it begins in the arena, if it arrives there in place; else
/// not_held. `offsets`: arena_offsets of the rank.
std::vector<std::uint64_t> places_of_tensors(const Schedule& schedule,
                                             std::span<const std::uint64_t> offsets);

}  // namespace safeshuffle::plan
