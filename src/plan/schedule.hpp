// The data of a plan, as plain as possible: everything else is computed from it on demand.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "safeshuffle/metadata.hpp"
#include "safeshuffle/options.hpp"
#include "safeshuffle/placement.hpp"
#include "safeshuffle/plan.hpp"

#include "plan/cut.hpp"

namespace safeshuffle::plan {

/// Every tensor in an arena starts at a multiple of this, and so does every run.
inline constexpr std::uint64_t arena_alignment = 256;

/// Slab offsets are congruent to file offsets modulo this, so that direct reads land in place.
inline constexpr std::uint64_t page_bytes = 4096;

/// The smallest window that can be asked for, in bytes.
inline constexpr std::uint64_t smallest_window = 4096;

/// Arena offset of a tensor of which the rank holds no byte.
inline constexpr std::uint64_t not_held = std::numeric_limits<std::uint64_t>::max();

/// Consecutive stored bytes [begin, end) of one tensor: all of it, or a chunk of one that is larger
/// than the window. A chunk is either whole rows of the cut (see Cut) or lies within one row.
struct Piece {
  std::uint32_t tensor = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t slab_offset = 0;
};

/// One contiguous range of a file and where in the slab it lies.
struct FileRange {
  std::uint32_t file = 0;
  std::uint64_t file_offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t slab_offset = 0;
};

/// What one rank reads for one wave. Several whole tensors, or exactly one chunk: a chunk's place
/// in the arena is given by its tensor, so it could not share a contiguous run with others.
struct Slab {
  std::vector<FileRange> file_ranges;  ///< ascending slab_offset
  std::vector<Piece> pieces;           ///< ascending slab_offset
};

struct Schedule {
  Catalog catalog;
  std::vector<Placement> placements;  ///< by tensor
  std::vector<DType> dtypes;          ///< by tensor: element type after the load
  std::vector<Cut> cuts;              ///< by tensor: cut_of its placement
  std::uint32_t world = 1;
  std::uint32_t waves = 0;
  std::uint64_t window = 0;
  Assignment assignment = Assignment::round_robin;
  std::vector<Slab> slabs;                                ///< [wave × world + reader]
  std::vector<std::vector<std::uint64_t>> arena_offsets;  ///< [rank][tensor], or not_held
  std::vector<RankSummary> ranks;
  std::uint64_t hash = 0;

  const Slab& slab(std::uint32_t wave, std::uint32_t reader) const {
    return slabs[std::size_t{wave} * world + reader];
  }
};

}  // namespace safeshuffle::plan
