// What is read in place: into the arena itself, instead of into a slab and copied from there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/schedule.hpp"
#include "plan/transfers.hpp"

namespace safeshuffle::plan {

/// One block of the slab that belongs into the arena as it is, and of which nothing else is used.
struct InPlaceBlock {
  std::uint64_t slab_offset = 0;
  std::uint64_t arena_offset = 0;
  std::uint64_t bytes = 0;
};

/// Which blocks can be read in place.
struct InPlaceRule {
  std::uint64_t smallest = 0;  ///< bytes
  /// Only those congruent to their file offset modulo core::page_bytes.
  bool congruent = true;
};

/// Takes those items out that only copy what is read in place, and returns what that is, ascending.
/// Items that follow each other in both memories make one block. What is left of `outgoing` needs
/// only the rest of the slab.
std::vector<InPlaceBlock> take_in_place(Outgoing& outgoing, const InPlaceRule& rule);

/// A file range in one of the two memories.
struct PlacedRange {
  FileRange range;  ///< `slab_offset`: of the slab, or of the arena
  bool in_arena = false;
};

/// The ranges of a slab, cut where what is read in place begins and ends. `blocks`: as
/// take_in_place returns them.
std::vector<PlacedRange> place_ranges(std::span<const FileRange> ranges,
                                      std::span<const InPlaceBlock> blocks);

}  // namespace safeshuffle::plan
