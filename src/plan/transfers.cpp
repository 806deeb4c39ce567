#include "plan/transfers.hpp"

#include <algorithm>
#include <utility>

#include "core/arithmetic.hpp"

namespace safeshuffle::plan {
namespace {

// NCCL copies byte by byte from addresses that are not a multiple of this.
constexpr std::uint64_t message_alignment = 16;

bool is_one_block(const PackItem& item) {
  return item.from == item.to && (item.rows == 1 || (item.source_stride == item.row_bytes &&
                                                     item.destination_stride == item.row_bytes));
}

}  // namespace

Outgoing TransferPlanner::outgoing(std::uint32_t wave, std::uint32_t rank) {
  outgoing_ = {};
  send_cursor_ = 0;
  const Slab& slab = schedule_.slab(wave, rank);
  pack_own(slab, rank, false);
  pack_own(slab, rank, true);
  for (std::uint32_t peer = 0; peer < schedule_.world; ++peer) {
    if (peer != rank) pack_send(slab, peer);
  }
  return std::exchange(outgoing_, {});
}

Incoming TransferPlanner::incoming(std::uint32_t wave, std::uint32_t rank) {
  Incoming incoming;
  if (schedule_.world == 1) return incoming;
  for (std::uint32_t reader = 0; reader < schedule_.world; ++reader) {
    const Slab& slab = schedule_.slab(wave, reader);
    const Run broadcast = run_from(slab, reader, rank, true);
    if (broadcast.bytes != 0) incoming.broadcasts.push_back(broadcast);
    if (reader == rank) continue;
    const Run receive = run_from(slab, reader, rank, false);
    if (receive.bytes != 0) incoming.receives.push_back(receive);
  }
  return incoming;
}

// A rank's own shards, and what it broadcasts, are packed straight into its arena.
void TransferPlanner::pack_own(const Slab& slab, std::uint32_t rank, bool replicated) {
  walker_.walk(slab, rank, replicated, [&](const RunEntry& entry, const RankColumns& columns) {
    append_items(entry, columns, arena_offset(entry, rank), PackTarget::arena);
  });
}

void TransferPlanner::pack_send(const Slab& slab, std::uint32_t destination) {
  const std::size_t first_item = outgoing_.items.size();
  Run run{destination, RunMemory::pack_buffer, send_cursor_, 0};
  run.bytes = walker_.walk(
      slab, destination, false, [&](const RunEntry& entry, const RankColumns& columns) {
        append_items(entry, columns, run.offset + entry.run_offset, PackTarget::pack_buffer);
      });
  if (run.bytes == 0) return;
  if (!send_from_slab(first_item, run)) {
    send_cursor_ = core::align_up(run.offset + run.bytes, arena_alignment);
  }
  outgoing_.sends.push_back(run);
}

// A run that is one aligned, unconverted block of the slab needs no packing.
bool TransferPlanner::send_from_slab(std::size_t first_item, Run& run) {
  if (outgoing_.items.size() != first_item + 1) return false;
  const PackItem& item = outgoing_.items.back();
  if (!is_one_block(item) || item.source % message_alignment != 0) return false;
  run.memory = RunMemory::slab;
  run.offset = item.source;
  outgoing_.items.pop_back();
  return true;
}

// What `rank` gets of `reader`'s slab: its shards, or the replicated tensors.
Run TransferPlanner::run_from(const Slab& slab, std::uint32_t reader, std::uint32_t rank,
                              bool replicated) {
  Run run{reader, RunMemory::arena, not_held, 0};
  run.bytes = walker_.walk(slab, rank, replicated, [&](const RunEntry& entry, const RankColumns&) {
    if (run.offset == not_held) run.offset = arena_offset(entry, rank);
  });
  return run;
}

// Where in the rank's arena its share of a piece begins.
std::uint64_t TransferPlanner::arena_offset(const RunEntry& entry, std::uint32_t rank) const {
  const std::uint32_t tensor = entry.piece->tensor;
  return schedule_.arena_offsets[rank][tensor] +
         converted_bytes(entry.share.prefix, schedule_.catalog.tensors()[tensor].dtype,
                         schedule_.dtypes[tensor]);
}

void TransferPlanner::append_items(const RunEntry& entry, const RankColumns& columns,
                                   std::uint64_t destination, PackTarget target) {
  const Piece& piece = *entry.piece;
  const DType from = schedule_.catalog.tensors()[piece.tensor].dtype;
  const DType to = schedule_.dtypes[piece.tensor];
  // A piece within one row is that row's columns from `first` to `last`; otherwise it is whole
  // rows.
  const std::uint64_t first = piece.begin % entry.cut.row_bytes;
  const std::uint64_t last = std::min(first + (piece.end - piece.begin), entry.cut.row_bytes);
  const std::uint64_t rows =
      std::max<std::uint64_t>(1, (piece.end - piece.begin) / entry.cut.row_bytes);
  const std::uint64_t destination_stride = converted_bytes(columns.row_bytes(), from, to);
  for (const Columns& kept : columns.columns()) {
    const std::uint64_t begin = std::max(kept.begin, first);
    const std::uint64_t end = std::min(kept.end, last);
    if (begin >= end) continue;
    const std::uint64_t bytes = end - begin;
    outgoing_.items.push_back({piece.slab_offset + (begin - first), destination, rows, bytes,
                               rows == 1 ? bytes : entry.cut.row_bytes,
                               rows == 1 ? converted_bytes(bytes, from, to) : destination_stride,
                               from, to, target});
    destination += converted_bytes(bytes, from, to);
  }
}

}  // namespace safeshuffle::plan
