// What one rank does in one wave: the table of its pack pass and the messages that follow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/arithmetic.hpp"
#include "core/pack_item.hpp"
#include "plan/cut.hpp"
#include "plan/landing.hpp"
#include "plan/lent_memory.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// Where a run lies in the memory of its rank.
enum class RunMemory : std::uint8_t { arena, landing, pack_buffer, slab };

/// One run, as one rank sees it. `peer` is the other side, or the root of a broadcast.
struct Run {
  std::uint32_t peer = 0;
  RunMemory memory = RunMemory::arena;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// What a rank contributes to a wave: its pack pass, then its sends. Runs, here and below, have
/// more than 0 bytes; there are at most two per peer, first the one that arrives in its place, then
/// the one that lands; none to itself. Items whose target is the pack buffer may lie behind its
/// end: there the landing buffer begins, in which the rank's own share is packed as if it had been
/// received. Those whose target is the arena may write to lent memory.
struct Outgoing {
  std::vector<PackItem> items;
  std::vector<Run> sends;  ///< ascending peer
};

/// With several replicas: the second exchange of a wave. What a rank has of its replica's slabs, it
/// passes on to its twins, where it goes to the same place. So a reader sends to its own replica
/// only. Runs are in the order of readers, those in place before those that land, on both sides;
/// there are several per peer.
struct Relays {
  std::vector<Run> sends;
  std::vector<Run> receives;
};

/// What a rank gets in a wave, in its arena or its landing buffer, and the pass that unpacks the
/// latter afterwards: `unpack` reads from the landing buffer. Of what would land and then be copied
/// to lent memory as one block, the run is received there instead, and the item is in `spared`.
struct Incoming {
  std::vector<Run> receives;    ///< in place, then landing; ascending peer
  std::vector<Run> broadcasts;  ///< likewise, its own included; equal on all ranks but for offset
  Relays relays;
  std::vector<PackItem> unpack;
  std::vector<PackItem> spared;  ///< in the order of `receives`, then of `broadcasts`
};

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

/// Walks the segments that one reader contributes to one destination in one wave. The arena layout,
/// the sizes of messages and the packing all follow from this one order. Holds scratch memory; not
/// thread-safe.
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

/// The parts of transfers, one slab and one destination at a time. Nothing depends on the wave: the
/// same segments give the same items and messages. Holds scratch memory; not thread-safe.
class SlabTransfers {
 public:
  explicit SlabTransfers(const Schedule& schedule) : schedule_(schedule), walker_(schedule) {}

  /// Appends the items that pack what `rank` keeps of its own slab in place, and what it broadcasts
  /// from there, straight into its arena. `places`: places_of_tensors of `rank`.
  void pack_own(const Slab& slab, std::uint32_t rank, std::span<const std::uint64_t> places,
                std::vector<PackItem>& items);

  /// Appends the items that pack the run of this route for `destination` at `pack_offset` of the
  /// pack buffer, and returns the run; of no bytes if there is none.
  Run pack_run(const Slab& slab, std::uint32_t destination, Route route, std::uint64_t pack_offset,
               std::vector<PackItem>& items);

  /// As pack_run, but a run that is one aligned, unconverted block of the slab needs no packing: it
  /// has no items, and is sent from the slab.
  Run prepare_send(const Slab& slab, std::uint32_t destination, bool lands,
                   std::uint64_t pack_offset, std::vector<PackItem>& items);

  /// What arrives in place at `rank` of `reader`'s slab: its shards, or the replicated tensors.
  /// `places`: places_of_tensors of `rank`.
  Run run_from(const Slab& slab, std::uint32_t reader, std::uint32_t rank, bool replicated,
               std::span<const std::uint64_t> places);

  /// What lands at `rank` of `reader`'s slab, at `landing_offset`.
  Run landing_run(const Slab& slab, std::uint32_t reader, std::uint32_t rank, bool replicated,
                  std::uint64_t landing_offset);

  /// Appends the items that unpack such a run. `offsets`: arena_offsets of `rank`.
  void unpack_run(const Slab& slab, std::uint32_t rank, bool replicated,
                  std::uint64_t landing_offset, std::span<const std::uint64_t> offsets,
                  std::vector<PackItem>& items);

  /// Appends the items that bring what does not land at the reader of `slab` straight to the memory
  /// that it has been lent.
  void pack_lent(const Slab& slab, const LentMemory& lent, std::vector<PackItem>& items) const;

  /// Appends the items that unpack a run that has landed into lent memory.
  void unpack_lent(const Slab& slab, std::uint32_t rank, bool replicated,
                   std::uint64_t landing_offset, const LentMemory& lent,
                   std::vector<PackItem>& items);

 private:
  std::uint64_t arena_offset(const RunEntry& entry, std::span<const std::uint64_t> places) const;
  void append_items(const RunEntry& entry, const RankColumns& columns, std::uint64_t destination,
                    PackTarget target, std::vector<PackItem>& items) const;

  const Schedule& schedule_;
  RunWalker walker_;
};

/// Computes the transfers of one rank. Takes memory proportional to the tensors; not thread-safe.
/// What fills lent memory, once it is there, is placed by offsets from LentMemory::base, as it is
/// by offsets from the beginning of an arena otherwise. In the landing buffer, runs follow each
/// other in the order of readers, replicated ones last.
class TransferPlanner {
 public:
  /// `lent`: the rank's; null if the targets are in arenas. Both must outlive it.
  TransferPlanner(const Schedule& schedule, std::uint32_t rank, const LentMemory* lent = nullptr);

  Outgoing outgoing(std::uint32_t wave);
  Incoming incoming(std::uint32_t wave);

  /// What of the rank's arena, or lent memory, is zero, and never written by a wave.
  std::vector<Zeros> zeros() const;

 private:
  bool lands_from(std::uint32_t wave, std::uint32_t reader, bool replicated) const noexcept;
  void pack_sends(Outgoing& outgoing);
  void pack_landing(std::uint32_t wave, Outgoing& outgoing);
  void add_in_place(std::uint32_t reader, Incoming& incoming);
  void unpack_lent(Run& run, bool replicated, Incoming& incoming);
  void add_run(const Run& run, Incoming& incoming) const;
  template <class Visit>
  void for_each_landing(std::uint32_t wave, Visit visit);

  const Schedule& schedule_;
  std::uint32_t rank_;
  const LentMemory* lent_;
  bool lands_;                          // whether anything does
  std::vector<std::uint64_t> offsets_;  // arena_offsets
  std::vector<std::uint64_t> places_;   // places_of_tensors
  SlabTransfers transfers_;
  Slab slab_;  // scratch
};

}  // namespace safeshuffle::plan
