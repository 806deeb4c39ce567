// Groups tensors: sizes and contents of shards depend on a tensor's geometry only, and a checkpoint
// of 100,000 tensors has a few dozen geometries.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/cut.hpp"
#include "plan/schedule.hpp"
#include "plan/segments.hpp"

namespace safeshuffle::plan {

/// `hash` with another value; good enough for the tables of planning, not for comparing plans (see
/// hash.hpp). The multiplier is 2^64 divided by the golden ratio (Knuth, TAOCP 3, 6.4).
constexpr std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) noexcept {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
  return hash ^ (hash >> 32);
}

/// Whether two tensors are equal in everything that decides how they are split, converted, moved
/// and unpacked: element types before and after the load, cut, way of arrival, whether it is
/// sliced, and for each use the placement, the extent along the split axis, the composition's
/// numbers, and the parts that fill lent memory. Then every rank keeps the same stored bytes of
/// both, counted from the start of the tensor.
bool same_geometry(const Schedule& schedule, std::uint32_t a, std::uint32_t b);

/// The tensors of a schedule, grouped by geometry.
struct Geometries {
  std::vector<std::uint32_t> of_tensor;  ///< [tensor] → index into the following
  std::vector<std::uint32_t> example;    ///< a tensor with this geometry
  std::vector<std::uint64_t> tensors;    ///< number of tensors that are read with this geometry
};

Geometries find_geometries(const Schedule& schedule);

/// Ranks [first, end) of a replica keep equal amounts of a tensor.
struct RankRun {
  std::uint32_t first = 0;
  std::uint32_t end = 0;
  std::uint64_t row_bytes = 0;    ///< stored bytes of one row of the share, not 0
  std::uint64_t share_bytes = 0;  ///< converted
};

/// The shares of one geometry, over all ranks of a replica that have any byte: ascending and
/// disjoint; usually one run. Takes O(ranks) time if the tensor is split. Replaces the contents of
/// `runs`.
void rank_runs(const Schedule& schedule, std::uint32_t tensor, std::vector<RankRun>& runs);

/// What it takes the host to read the share of each rank of the run from the page cache beyond
/// reading as many bytes in one piece: cached_overhead. `columns` is scratch memory.
std::uint64_t run_overhead(const Schedule& schedule, std::uint32_t tensor, const RankRun& run,
                           RankColumns& columns);

/// Converted bytes that `rank` keeps of a stored tensor; `columns` is scratch memory.
std::uint64_t share_bytes(const Schedule& schedule, std::uint32_t tensor, std::uint32_t rank,
                          RankColumns& columns);

/// Calls visit(rank, columns) for every rank of the first replica that keeps bytes of the tensor
/// that are not broadcast; so for none if the tensor is replicated.
template <class Visit>
void for_each_receiver(const Schedule& schedule, std::uint32_t tensor, RankColumns& columns,
                       Visit visit) {
  if (is_replicated(schedule, tensor)) return;
  const std::span<const Use> uses = uses_of(schedule, tensor);
  const Placement& placement = placement_of(schedule, uses.front());
  const bool single = uses.size() == 1 && placement.kind == Placement::Kind::single;
  const std::uint32_t first = single ? placement.rank : 0;
  const std::uint32_t end = single ? first + 1 : schedule.replica_size;
  for (std::uint32_t rank = first; rank < end; ++rank) {
    columns.assign(schedule, tensor, rank);
    if (columns.row_bytes() != 0) visit(rank, columns);
  }
}

/// Segments of the first line of a tensor's segments (see Segments), ascending, that represent all:
/// every other segment of the line equals the nearest one before it in this list, moved by whole
/// segments within the columns of the same ranks. So each gives the same ranks equally many bytes,
/// at offsets moved by the same distance. Lines differ by whole rows only.
std::vector<std::uint64_t> representative_segments(const Schedule& schedule, std::uint32_t tensor);

/// The same of the segments of one tensor, for one rank, which keeps these columns.
std::vector<std::uint64_t> representative_segments(const Segments& segments,
                                                   const RankColumns& columns);

/// Calls visit(rank, columns, i) for every receiver (see above) and every segment `indices[i]` of
/// which it keeps bytes. `indices` as representative_segments returns them.
template <class Visit>
void for_each_segment_share(const Schedule& schedule, std::uint32_t tensor,
                            std::span<const std::uint64_t> indices, Visit visit) {
  const Cut& cut = schedule.cuts[tensor];
  const Segments segments(cut, schedule.window);
  RankColumns columns;
  for_each_receiver(schedule, tensor, columns, [&](std::uint32_t rank, const RankColumns& kept) {
    std::size_t next = 0;
    for (const Columns& interval : kept.columns()) {
      // Earlier ones end before the interval begins, unless a segment has whole rows.
      const std::uint64_t first = segments.within_rows() ? interval.begin / segments.step() : 0;
      const auto at = std::lower_bound(indices.begin() + static_cast<std::ptrdiff_t>(next),
                                       indices.end(), first);
      for (next = static_cast<std::size_t>(at - indices.begin()); next < indices.size(); ++next) {
        const Range segment = segments.bytes(indices[next]);
        if (segments.within_rows() && segment.begin >= interval.end) break;
        visit(rank, kept, next);
      }
    }
  });
}

}  // namespace safeshuffle::plan
