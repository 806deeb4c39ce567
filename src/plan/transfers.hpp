// What one rank does in one wave: the table of its pack pass and the messages that follow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/pack_item.hpp"
#include "plan/run.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// Where a run lies in the memory of its rank.
enum class RunMemory : std::uint8_t { arena, pack_buffer, slab };

/// One run, as one rank sees it. `peer` is the other side, or the root of a broadcast.
struct Run {
  std::uint32_t peer = 0;
  RunMemory memory = RunMemory::arena;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// What a rank contributes to a wave: its pack pass, then its sends. Runs, here and below, have
/// more than 0 bytes; there is at most one per peer, none to itself.
struct Outgoing {
  std::vector<PackItem> items;
  std::vector<Run> sends;  ///< ascending peer
};

/// What a rank gets in a wave; all in its arena.
struct Incoming {
  std::vector<Run> receives;  ///< ascending peer
  std::vector<Run>
      broadcasts;  ///< ascending root, including its own; equal on all ranks except for offset
};

/// The parts of transfers, one slab and one destination at a time. Nothing depends on the wave: the
/// same segments give the same items and messages. Holds scratch memory; not thread-safe.
class SlabTransfers {
 public:
  explicit SlabTransfers(const Schedule& schedule) : schedule_(schedule), walker_(schedule) {}

  /// Appends the items that pack what `rank` keeps of its own slab, and what it broadcasts,
  /// straight into its arena. `offsets`: arena_offsets of `rank`.
  void pack_own(const Slab& slab, std::uint32_t rank, std::span<const std::uint64_t> offsets,
                std::vector<PackItem>& items);

  /// Appends the items that pack the run for `destination` at `pack_offset` of the pack buffer, and
  /// returns the run; of no bytes if there is none. A run that is one aligned, unconverted block of
  /// the slab needs no packing: it has no items, and is sent from the slab.
  Run pack_run(const Slab& slab, std::uint32_t destination, std::uint64_t pack_offset,
               std::vector<PackItem>& items);

  /// What `rank` gets of `reader`'s slab: its shards, or the replicated tensors. `offsets`:
  /// arena_offsets of `rank`.
  Run run_from(const Slab& slab, std::uint32_t reader, std::uint32_t rank, bool replicated,
               std::span<const std::uint64_t> offsets);

 private:
  std::uint64_t arena_offset(const RunEntry& entry, std::span<const std::uint64_t> offsets) const;
  void append_items(const RunEntry& entry, const RankColumns& columns, std::uint64_t destination,
                    PackTarget target, std::vector<PackItem>& items) const;

  const Schedule& schedule_;
  RunWalker walker_;
};

/// Computes the transfers of one rank. Takes memory proportional to the tensors; not thread-safe.
class TransferPlanner {
 public:
  TransferPlanner(const Schedule& schedule, std::uint32_t rank);

  Outgoing outgoing(std::uint32_t wave);
  Incoming incoming(std::uint32_t wave);

 private:
  const Schedule& schedule_;
  std::uint32_t rank_;
  std::vector<std::uint64_t> offsets_;  // arena_offsets
  SlabTransfers transfers_;
  Slab slab_;  // scratch
};

}  // namespace safeshuffle::plan
