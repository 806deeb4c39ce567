// Walking the segments that one reader contributes to one destination in one wave. The arena
// layout, the sizes of messages and the packing all follow from this one order.
#pragma once

#include <cstdint>

#include "core/arithmetic.hpp"
#include "plan/cut.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// What a destination gets of one segment.
struct RunEntry {
  const Segment* segment = nullptr;
  Cut cut;
  Share share;                   ///< in stored bytes
  std::uint64_t run_offset = 0;  ///< from the start of the run
  std::uint64_t bytes = 0;       ///< converted
};

/// Runs of a slab to a destination are kept apart by how they travel and where they arrive.
struct Route {
  bool replicated = false;  ///< broadcast to all ranks; else sent to one
  bool lands = false;       ///< arrives in the landing buffer; else in its place in the arena
};

/// Walks the runs of one schedule. Holds scratch memory; not thread-safe.
class RunWalker {
 public:
  explicit RunWalker(const Schedule& schedule) : schedule_(schedule) {}

  /// Calls visit(entry, columns) for every segment of `slab` of which `destination` gets a share,
  /// in run order; segments of the route only. Returns the bytes of the run, alignment gaps
  /// included.
  template <class Visit>
  std::uint64_t walk(const Slab& slab, std::uint32_t destination, Route route, Visit visit) {
    std::uint64_t cursor = 0;
    std::uint64_t run_bytes = 0;
    for (const Segment& segment : slab.segments) {
      if (schedule_.lands[segment.tensor] != route.lands) continue;
      if (is_replicated(schedule_, segment.tensor) != route.replicated) continue;
      const RunEntry entry = entry_of(segment, destination, cursor);
      if (entry.bytes == 0) continue;
      visit(entry, columns_);
      run_bytes = cursor + entry.bytes;
      cursor = core::align_up(run_bytes, arena_alignment);
    }
    return run_bytes;
  }

 private:
  RunEntry entry_of(const Segment& segment, std::uint32_t destination, std::uint64_t run_offset) {
    const Cut& cut = schedule_.cuts[segment.tensor];
    columns_.assign(schedule_, segment.tensor, destination);
    const Share share = share_of(cut, columns_, segment.begin, segment.end);
    return {&segment, cut, share, run_offset,
            converted_bytes(schedule_, segment.tensor, share.bytes)};
  }

  const Schedule& schedule_;
  RankColumns columns_;
};

}  // namespace safeshuffle::plan
