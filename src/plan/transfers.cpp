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

Transfers TransferPlanner::transfers(std::uint32_t wave, std::uint32_t rank) {
  result_ = {};
  send_cursor_ = 0;
  const Slab& own = schedule_.slab(wave, rank);
  for (std::uint32_t peer = 0; peer < schedule_.world; ++peer) {
    if (peer == rank) {
      pack_own(own, rank, false);
      pack_own(own, rank, true);
    } else {
      pack_send(own, peer);
    }
    if (schedule_.world > 1) expect(schedule_.slab(wave, peer), peer, rank);
  }
  return std::exchange(result_, {});
}

// A rank's own shards, and what it broadcasts, are packed straight into its arena.
void TransferPlanner::pack_own(const Slab& slab, std::uint32_t rank, bool replicated) {
  walker_.walk(slab, rank, replicated, [&](const RunEntry& entry, const RankColumns& columns) {
    const std::uint32_t tensor = entry.piece->tensor;
    const std::uint64_t prefix = converted_bytes(
        entry.share.prefix, schedule_.catalog.tensors()[tensor].dtype, schedule_.dtypes[tensor]);
    append_items(entry, columns, schedule_.arena_offsets[rank][tensor] + prefix, PackTarget::arena);
  });
}

void TransferPlanner::pack_send(const Slab& slab, std::uint32_t destination) {
  const std::size_t first_item = result_.items.size();
  Run run{destination, RunMemory::send, send_cursor_, 0};
  run.bytes = walker_.walk(
      slab, destination, false, [&](const RunEntry& entry, const RankColumns& columns) {
        append_items(entry, columns, run.offset + entry.run_offset, PackTarget::send);
      });
  if (run.bytes == 0) return;
  if (!send_from_slab(first_item, run)) {
    send_cursor_ = core::align_up(run.offset + run.bytes, arena_alignment);
  }
  result_.sends.push_back(run);
}

// A run that is one aligned, unconverted block of the slab needs no packing.
bool TransferPlanner::send_from_slab(std::size_t first_item, Run& run) {
  if (result_.items.size() != first_item + 1) return false;
  const PackItem& item = result_.items.back();
  if (!is_one_block(item) || item.source % message_alignment != 0) return false;
  run.memory = RunMemory::slab;
  run.offset = item.source;
  result_.items.pop_back();
  return true;
}

// What `rank` receives of `reader` in this wave, be it sent or broadcast.
void TransferPlanner::expect(const Slab& slab, std::uint32_t reader, std::uint32_t rank) {
  for (const bool replicated : {false, true}) {
    if (!replicated && reader == rank) continue;
    Run run{reader, RunMemory::arena, not_held, 0};
    run.bytes =
        walker_.walk(slab, rank, replicated, [&](const RunEntry& entry, const RankColumns&) {
          if (run.offset != not_held) return;
          const std::uint32_t tensor = entry.piece->tensor;
          run.offset =
              schedule_.arena_offsets[rank][tensor] +
              converted_bytes(entry.share.prefix, schedule_.catalog.tensors()[tensor].dtype,
                              schedule_.dtypes[tensor]);
        });
    if (run.bytes != 0) (replicated ? result_.broadcasts : result_.receives).push_back(run);
  }
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
    result_.items.push_back({piece.slab_offset + (begin - first), destination, rows, bytes,
                             rows == 1 ? bytes : entry.cut.row_bytes,
                             rows == 1 ? converted_bytes(bytes, from, to) : destination_stride,
                             from, to, target});
    destination += converted_bytes(bytes, from, to);
  }
}

}  // namespace safeshuffle::plan
