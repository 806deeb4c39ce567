// The data of a plan, as plain as possible: everything else is computed from it on demand.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "safeshuffle/metadata.hpp"
#include "safeshuffle/options.hpp"
#include "safeshuffle/placement.hpp"
#include "safeshuffle/plan.hpp"
#include "safeshuffle/target.hpp"

#include "core/pack_item.hpp"
#include "plan/cut.hpp"

namespace safeshuffle::plan {

/// Every tensor in an arena starts at a multiple of this, and so does every run.
inline constexpr std::uint64_t arena_alignment = 256;

/// Arena offset of a tensor of which the rank holds no byte.
inline constexpr std::uint64_t not_held = std::numeric_limits<std::uint64_t>::max();

/// Consecutive stored bytes [begin, end) of one tensor: one of its segments (see Segments).
struct Segment {
  std::uint32_t tensor = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t slab_offset = 0;
};

/// One contiguous range of a file and where in the slab it lies. It has the pages of the slab in
/// which it begins and ends for itself.
struct FileRange {
  std::uint32_t file = 0;
  std::uint64_t file_offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t slab_offset = 0;
};

/// What one rank reads for one wave, computed by `slab_at`. Several whole tensors, or exactly one
/// segment: a segment's place in the arena is determined by its tensor, so it cannot share a
/// contiguous run with others.
struct Slab {
  std::vector<FileRange> file_ranges;  ///< ascending slab_offset
  std::vector<Segment> segments;       ///< ascending slab_offset
};

/// Consecutive segments of one tensor (see Segments) as one rank reads them. Reads of whole tensors
/// may share a wave; each segment of a larger tensor has a wave for itself, one after the other.
struct Read {
  std::uint32_t tensor = 0;
  std::uint32_t first_segment = 0;
  std::uint32_t segments = 0;
  std::uint32_t wave = 0;  ///< of the first segment
};

/// What a target needs of one stored tensor: the tensor as it is, or one fill of a composition.
struct Use {
  std::uint32_t tensor = 0;
  std::uint32_t target = 0;
  std::uint32_t fill = 0;  ///< index into the composition's fills; 0 if there is no composition
  bool operator==(const Use&) const = default;
};

/// The layers of a model, see find_layers.
struct Layers {
  std::vector<std::uint64_t> numbers;  ///< ascending
  std::vector<std::uint32_t> depth;    ///< by tensor: 0 before the layers, i + 1 in layer
                                       ///< numbers[i], numbers.size() + 1 after the layers
};
inline constexpr std::uint32_t first_layer_depth = 1;

/// While one is packed and exchanged, the others are read.
inline constexpr std::uint32_t slabs_per_rank = 3;

/// Takes memory proportional to tensors + ranks, whatever the window is: slabs, the places of
/// targets in arenas, and messages are computed when needed.
struct Schedule {
  Catalog catalog;
  std::vector<Target> targets;
  std::vector<Use> uses;                 ///< ordered by tensor; of targets that any rank holds
  std::vector<std::uint32_t> first_use;  ///< by tensor, and the end: index into `uses`
  std::vector<DType> dtypes;             ///< by tensor: element type after the load
  std::vector<Cut> cuts;                 ///< by tensor: cut_of
  std::vector<bool> lands;               ///< by tensor: whether shares of it land, and are unpacked
  std::vector<bool> sliced;  ///< by tensor: whether every rank reads what it keeps of it; otherwise
                             ///< one does, or several in parts, and it is exchanged
  Layers layers;
  Order order = Order::file;
  std::uint32_t world = 1;
  std::uint32_t replicas = 1;
  std::uint32_t replica_size = 1;  ///< ranks of one replica; world = replicas × replica_size
  std::uint32_t waves = 0;
  std::uint32_t exchanged_waves = 0;  ///< the first waves; in the others, ranks read slices
  std::uint64_t window = 0;
  std::uint32_t slabs = slabs_per_rank;
  Assignment assignment = Assignment::round_robin;  ///< never `automatic`
  std::string assignment_reason;                    ///< see Plan::assignment_reason; not hashed
  std::vector<std::vector<Read>> reads;  ///< [reader], in reading order: of what is exchanged
  std::vector<Read> slices;  ///< in the reading order of all ranks: whole tensors, of which each
                             ///< rank reads its own part; `segments` of them is slice_waves
  std::vector<std::uint32_t> arena_order;  ///< all targets that have bytes, in the order of arenas;
                                           ///< none if they fill lent memory
  std::vector<RankSummary> ranks;
  std::uint64_t hash = 0;
};

/// Whether ranks exchange what they read for a wave. Otherwise they read slices.
inline bool is_exchanged(const Schedule& schedule, std::uint32_t wave) noexcept {
  return wave < schedule.exchanged_waves;
}

/// The uses of one stored tensor.
inline std::span<const Use> uses_of(const Schedule& schedule, std::uint32_t tensor) {
  const std::uint32_t first = schedule.first_use[tensor];
  return std::span(schedule.uses).subspan(first, schedule.first_use[tensor + 1] - first);
}

inline const Placement& placement_of(const Schedule& schedule, const Use& use) {
  return schedule.targets[use.target].placement;
}

/// The fill of a use; null if its target is the tensor as it is stored.
inline const Fill* fill_of(const Schedule& schedule, const Use& use) {
  const auto& composition = schedule.targets[use.target].composition;
  return composition ? &composition->fills[use.fill] : nullptr;
}

/// Whether all targets fill memory that callers lend. Otherwise all are in arenas.
inline bool fills_lent_memory(const Schedule& schedule) noexcept {
  return !schedule.targets.empty() && schedule.targets.front().parts != nullptr;
}

/// What ranks need of a stored tensor for lent memory; null if nothing.
inline const RankParts* parts_of(const Schedule& schedule, std::uint32_t tensor) noexcept {
  const std::span<const Use> uses = uses_of(schedule, tensor);
  return uses.empty() ? nullptr : schedule.targets[uses.front().target].parts.get();
}

/// Whether the tensor has one target, which is the tensor as it is stored: ranks' shares of it are
/// their shards of the target.
inline bool is_target(const Schedule& schedule, std::uint32_t tensor) {
  const std::span<const Use> uses = uses_of(schedule, tensor);
  return uses.size() == 1 && !schedule.targets[uses.front().target].composition;
}

/// Whether every rank keeps the same bytes of the tensor, which are broadcast.
inline bool is_replicated(const Schedule& schedule, std::uint32_t tensor) {
  for (const Use& use : uses_of(schedule, tensor)) {
    if (placement_of(schedule, use).kind != Placement::Kind::replicated) return false;
  }
  return true;
}

/// Whether what the tensor's reader keeps of it lands, too. For lent memory, only what is
/// broadcast: all else goes there straight from the slab.
inline bool lands_at_reader(const Schedule& schedule, std::uint32_t tensor) {
  const bool is_broadcast =
      schedule.world > 1 && !schedule.sliced[tensor] && is_replicated(schedule, tensor);
  return schedule.lands[tensor] && (is_broadcast || !fills_lent_memory(schedule));
}

/// Whether any rank needs stored bytes of the tensor.
inline bool is_read(const Schedule& schedule, std::uint32_t tensor) {
  return schedule.first_use[tensor] != schedule.first_use[tensor + 1] &&
         schedule.catalog.tensors()[tensor].bytes != 0;
}

/// Which shard of every target `rank` holds: the same as one rank of every other replica.
inline std::uint32_t shard_index(const Schedule& schedule, std::uint32_t rank) noexcept {
  return rank % schedule.replica_size;
}

inline std::uint32_t replica_of(const Schedule& schedule, std::uint32_t rank) noexcept {
  return rank / schedule.replica_size;
}

/// The rank of `replica` that holds the same shards as `rank`.
inline std::uint32_t twin_of(const Schedule& schedule, std::uint32_t rank,
                             std::uint32_t replica) noexcept {
  return replica * schedule.replica_size + shard_index(schedule, rank);
}

/// Whether any rank needs a landing buffer.
inline bool anything_lands(const Schedule& schedule) {
  return std::find(schedule.lands.begin(), schedule.lands.end(), true) != schedule.lands.end();
}

/// `stored` bytes of the tensor after conversion.
inline std::uint64_t converted_bytes(const Schedule& schedule, std::uint32_t tensor,
                                     std::uint64_t stored) {
  return converted_bytes(stored, schedule.catalog.tensors()[tensor].dtype, schedule.dtypes[tensor]);
}

}  // namespace safeshuffle::plan
