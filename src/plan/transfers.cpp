#include "plan/transfers.hpp"

#include <algorithm>

#include "core/arithmetic.hpp"
#include "plan/arena.hpp"
#include "plan/waves.hpp"

namespace safeshuffle::plan {
namespace {

// NCCL copies byte by byte from addresses that are not a multiple of this.
constexpr std::uint64_t message_alignment = 16;

// A run of this single item can be sent directly from the slab.
bool is_sendable(const PackItem& item) {
  return is_one_block(item) && item.source % message_alignment == 0;
}

// A run that this single item unpacks can be received where it belongs.
bool is_receivable(const PackItem& item, const Run& run) {
  return is_one_block(item) && item.rows * item.row_bytes == run.bytes &&
         item.destination % message_alignment == 0;
}

}  // namespace

void SlabTransfers::pack_own(const Slab& slab, std::uint32_t rank,
                             std::span<const std::uint64_t> places, std::vector<PackItem>& items) {
  for (const bool replicated : {false, true}) {
    walker_.walk(
        slab, rank, {replicated, false}, [&](const RunEntry& entry, const RankColumns& columns) {
          append_items(entry, columns, arena_offset(entry, places), PackTarget::arena, items);
        });
  }
}

Run SlabTransfers::pack_run(const Slab& slab, std::uint32_t destination, Route route,
                            std::uint64_t pack_offset, std::vector<PackItem>& items) {
  Run run{destination, RunMemory::pack_buffer, pack_offset, 0};
  run.bytes = walker_.walk(slab, destination, route,
                           [&](const RunEntry& entry, const RankColumns& columns) {
                             append_items(entry, columns, pack_offset + entry.run_offset,
                                          PackTarget::pack_buffer, items);
                           });
  return run;
}

Run SlabTransfers::prepare_send(const Slab& slab, std::uint32_t destination, bool lands,
                                std::uint64_t pack_offset, std::vector<PackItem>& items) {
  const std::size_t first_item = items.size();
  Run run = pack_run(slab, destination, {false, lands}, pack_offset, items);
  if (items.size() == first_item + 1 && is_sendable(items.back())) {
    run.memory = RunMemory::slab;
    run.offset = items.back().source;
    items.pop_back();
  }
  return run;
}

Run SlabTransfers::run_from(const Slab& slab, std::uint32_t reader, std::uint32_t rank,
                            bool replicated, std::span<const std::uint64_t> places) {
  Run run{reader, RunMemory::arena, not_held, 0};
  run.bytes =
      walker_.walk(slab, rank, {replicated, false}, [&](const RunEntry& entry, const RankColumns&) {
        if (run.offset == not_held) run.offset = arena_offset(entry, places);
      });
  return run;
}

Run SlabTransfers::landing_run(const Slab& slab, std::uint32_t reader, std::uint32_t rank,
                               bool replicated, std::uint64_t landing_offset) {
  const std::uint64_t bytes =
      walker_.walk(slab, rank, {replicated, true}, [](const RunEntry&, const RankColumns&) {});
  return {reader, RunMemory::landing, landing_offset, bytes};
}

void SlabTransfers::unpack_run(const Slab& slab, std::uint32_t rank, bool replicated,
                               std::uint64_t landing_offset, std::span<const std::uint64_t> offsets,
                               std::vector<PackItem>& items) {
  walker_.walk(slab, rank, {replicated, true}, [&](const RunEntry& entry, const RankColumns& kept) {
    const std::uint32_t tensor = entry.segment->tensor;
    const std::uint64_t begin = converted_bytes(schedule_, tensor, entry.share.prefix);
    for (const Use& use : uses_of(schedule_, tensor)) {
      append_unpack_items(unpacking_of(schedule_, use, rank, kept), schedule_.dtypes[tensor],
                          {begin, begin + entry.bytes}, landing_offset + entry.run_offset,
                          offsets[use.target], items);
    }
  });
}

void SlabTransfers::pack_lent(const Slab& slab, const LentMemory& lent,
                              std::vector<PackItem>& items) const {
  for (const Segment& segment : slab.segments) {
    if (lands_at_reader(schedule_, segment.tensor)) continue;
    const std::uint64_t bytes = schedule_.catalog.tensors()[segment.tensor].bytes;
    const KeptColumns all{{{0, bytes}}, {0}, bytes};
    append_copy_items(lent, segment.tensor, {segment.begin, segment.end},
                      {bytes, all, segment.slab_offset - segment.begin}, items);
  }
}

void SlabTransfers::unpack_lent(const Slab& slab, std::uint32_t rank, bool replicated,
                                std::uint64_t landing_offset, const LentMemory& lent,
                                std::vector<PackItem>& items) {
  walker_.walk(slab, rank, {replicated, true}, [&](const RunEntry& entry, const RankColumns& kept) {
    const Segment& segment = *entry.segment;
    append_copy_items(
        lent, segment.tensor, {segment.begin, segment.end},
        {entry.cut.row_bytes, kept.kept(), landing_offset + entry.run_offset - entry.share.prefix},
        items);
  });
}

// Where in the rank's arena its share of a segment begins.
std::uint64_t SlabTransfers::arena_offset(const RunEntry& entry,
                                          std::span<const std::uint64_t> places) const {
  const std::uint32_t tensor = entry.segment->tensor;
  return places[tensor] + converted_bytes(schedule_, tensor, entry.share.prefix);
}

void SlabTransfers::append_items(const RunEntry& entry, const RankColumns& columns,
                                 std::uint64_t destination, PackTarget target,
                                 std::vector<PackItem>& items) const {
  const Segment& segment = *entry.segment;
  const DType from = schedule_.catalog.tensors()[segment.tensor].dtype;
  const DType to = schedule_.dtypes[segment.tensor];
  // A segment within one row is that row's columns from `first` to `last`; otherwise it is whole
  // rows.
  const std::uint64_t first = segment.begin % entry.cut.row_bytes;
  const std::uint64_t last = std::min(first + (segment.end - segment.begin), entry.cut.row_bytes);
  const std::uint64_t rows =
      std::max<std::uint64_t>(1, (segment.end - segment.begin) / entry.cut.row_bytes);
  const std::uint64_t destination_stride = converted_bytes(columns.row_bytes(), from, to);
  for (const Columns& kept : columns.columns()) {
    const std::uint64_t begin = std::max(kept.begin, first);
    const std::uint64_t end = std::min(kept.end, last);
    if (begin >= end) continue;
    const std::uint64_t bytes = end - begin;
    items.push_back({segment.slab_offset + (begin - first), destination, rows, bytes,
                     rows == 1 ? bytes : entry.cut.row_bytes,
                     rows == 1 ? converted_bytes(bytes, from, to) : destination_stride, from, to,
                     target});
    destination += converted_bytes(bytes, from, to);
  }
}

TransferPlanner::TransferPlanner(const Schedule& schedule, std::uint32_t rank,
                                 const LentMemory* lent)
    : schedule_(schedule),
      rank_(rank),
      lent_(lent),
      lands_(anything_lands(schedule)),
      offsets_(arena_offsets(schedule, rank)),
      places_(places_of_tensors(schedule, offsets_)),
      transfers_(schedule) {}

Outgoing TransferPlanner::outgoing(std::uint32_t wave) {
  Outgoing outgoing;
  slab_at(schedule_, wave, rank_, slab_);
  if (lent_ != nullptr) {
    transfers_.pack_lent(slab_, *lent_, outgoing.items);
  } else {
    transfers_.pack_own(slab_, rank_, places_, outgoing.items);
  }
  if (is_exchanged(schedule_, wave)) pack_sends(outgoing);
  if (lands_) pack_landing(wave, outgoing);
  return outgoing;
}

// Of what lands at all, whether it does so at this rank.
bool TransferPlanner::lands_from(std::uint32_t wave, std::uint32_t reader,
                                 bool replicated) const noexcept {
  const bool exchanged = is_exchanged(schedule_, wave);
  if (reader != rank_) return exchanged;
  return lent_ == nullptr || (exchanged && replicated && schedule_.world > 1);
}

void TransferPlanner::pack_sends(Outgoing& outgoing) {
  std::uint64_t free_from = 0;
  const std::uint32_t first = rank_ - shard_index(schedule_, rank_);
  for (std::uint32_t peer = first; peer < first + schedule_.replica_size; ++peer) {
    if (peer == rank_) continue;
    for (const bool lands : {false, true}) {
      if (lands && !lands_) continue;
      const Run run = transfers_.prepare_send(slab_, peer, lands, free_from, outgoing.items);
      if (run.bytes == 0) continue;
      outgoing.sends.push_back(run);
      if (run.memory == RunMemory::pack_buffer) {
        free_from = core::align_up(run.offset + run.bytes, arena_alignment);
      }
    }
  }
}

// Also what it broadcasts: from where it lands.
void TransferPlanner::pack_landing(std::uint32_t wave, Outgoing& outgoing) {
  const std::uint64_t landing = schedule_.ranks[rank_].pack_bytes;
  for_each_landing(wave, [&](const Run& run, bool replicated) {
    if (run.peer != rank_) return;
    transfers_.pack_run(slab_, rank_, {replicated, true}, landing + run.offset, outgoing.items);
  });
}

Incoming TransferPlanner::incoming(std::uint32_t wave) {
  Incoming incoming;
  const bool exchanges = schedule_.world > 1 && is_exchanged(schedule_, wave);
  if (exchanges) {
    for (std::uint32_t reader = 0; reader < schedule_.world; ++reader) {
      slab_at(schedule_, wave, reader, slab_);
      add_in_place(reader, incoming);
    }
  }
  if (!lands_) return incoming;
  for_each_landing(wave, [&](Run run, bool replicated) {
    if (lent_ != nullptr) {
      unpack_lent(run, replicated, incoming);
    } else {
      transfers_.unpack_run(slab_, rank_, replicated, run.offset, offsets_, incoming.unpack);
    }
    if (!exchanges) return;
    if (replicated) {
      incoming.broadcasts.push_back(run);
    } else {
      add_run(run, incoming);
    }
  });
  return incoming;
}

void TransferPlanner::unpack_lent(Run& run, bool replicated, Incoming& incoming) {
  const std::size_t first_item = incoming.unpack.size();
  transfers_.unpack_lent(slab_, rank_, replicated, run.offset, *lent_, incoming.unpack);
  const bool is_single = incoming.unpack.size() == first_item + 1;
  if (run.peer == rank_ || !is_single || !is_receivable(incoming.unpack.back(), run)) return;
  incoming.spared.push_back(incoming.unpack.back());
  incoming.unpack.pop_back();
  run.memory = RunMemory::arena;
  run.offset = incoming.spared.back().destination;
}

void TransferPlanner::add_in_place(std::uint32_t reader, Incoming& incoming) {
  const Run broadcast = transfers_.run_from(slab_, reader, rank_, true, places_);
  if (broadcast.bytes != 0) incoming.broadcasts.push_back(broadcast);
  if (reader == rank_ && schedule_.replicas == 1) return;
  const Run run = transfers_.run_from(slab_, reader, rank_, false, places_);
  if (run.bytes != 0) add_run(run, incoming);
}

// Of what the run's peer has read, the rank's own included.
void TransferPlanner::add_run(const Run& run, Incoming& incoming) const {
  const std::uint32_t replica = replica_of(schedule_, run.peer);
  Run relay = run;
  if (replica != replica_of(schedule_, rank_)) {
    relay.peer = twin_of(schedule_, rank_, replica);
    incoming.relays.receives.push_back(relay);
    return;
  }
  if (run.peer != rank_) incoming.receives.push_back(run);
  for (std::uint32_t other = 0; other < schedule_.replicas; ++other) {
    if (other == replica) continue;
    relay.peer = twin_of(schedule_, rank_, other);
    incoming.relays.sends.push_back(relay);
  }
}

std::vector<Zeros> TransferPlanner::zeros() const {
  if (lent_ != nullptr) return lent_->zeros;
  std::vector<Zeros> zeros;
  for (std::uint32_t target = 0; target < offsets_.size(); ++target) {
    if (offsets_[target] != not_held) {
      append_zeros(schedule_, target, rank_, offsets_[target], zeros);
    }
  }
  return zeros;
}

// Calls visit(run, replicated) for everything that lands at the rank in a wave, its own included;
// slab_ is that of its reader.
template <class Visit>
void TransferPlanner::for_each_landing(std::uint32_t wave, Visit visit) {
  std::uint64_t free_from = 0;
  for (const bool replicated : {false, true}) {
    for (std::uint32_t reader = 0; reader < schedule_.world; ++reader) {
      if (!lands_from(wave, reader, replicated)) continue;
      slab_at(schedule_, wave, reader, slab_);
      const Run run = transfers_.landing_run(slab_, reader, rank_, replicated, free_from);
      if (run.bytes == 0) continue;
      visit(run, replicated);
      free_from = core::align_up(free_from + run.bytes, arena_alignment);
    }
  }
}

}  // namespace safeshuffle::plan
