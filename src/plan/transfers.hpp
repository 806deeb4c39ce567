// What one rank does in one wave: the table of its pack pass and the messages that follow.
#pragma once

#include <cstdint>
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
      broadcasts;  ///< ascending root, its own too; on all ranks the same but for offset
};

/// Computes the transfers of one schedule. Holds scratch memory; not thread-safe.
class TransferPlanner {
 public:
  explicit TransferPlanner(const Schedule& schedule) : schedule_(schedule), walker_(schedule) {}

  Outgoing outgoing(std::uint32_t wave, std::uint32_t rank);
  Incoming incoming(std::uint32_t wave, std::uint32_t rank);

 private:
  void pack_own(const Slab& slab, std::uint32_t rank, bool replicated);
  void pack_send(const Slab& slab, std::uint32_t destination);
  Run run_from(const Slab& slab, std::uint32_t reader, std::uint32_t rank, bool replicated);
  std::uint64_t arena_offset(const RunEntry& entry, std::uint32_t rank) const;
  void append_items(const RunEntry& entry, const RankColumns& columns, std::uint64_t destination,
                    PackTarget target);
  bool send_from_slab(std::size_t first_item, Run& run);

  const Schedule& schedule_;
  RunWalker walker_;
  Outgoing outgoing_;  // being made
  std::uint64_t send_cursor_ = 0;
};

}  // namespace safeshuffle::plan
