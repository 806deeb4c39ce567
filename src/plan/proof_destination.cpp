#include "plan/proof_destination.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/arithmetic.hpp"
#include "plan/cut.hpp"
#include "plan/proof_support.hpp"
#include "plan/transfers.hpp"

namespace safeshuffle::plan {
namespace {

// Every tensor once: those that are read in the order in which arenas are usually laid out, so that
// ranges taken in this order need no sorting; then the others.
std::vector<std::uint32_t> reading_order(const Schedule& schedule) {
  std::vector<bool> seen(schedule.cuts.size());
  std::vector<std::uint32_t> order;
  const auto append = [&](std::uint32_t tensor) {
    if (!seen[tensor]) order.push_back(tensor);
    seen[tensor] = true;
  };
  for (const Slab& slab : schedule.slabs) {
    for (const bool replicated : {false, true}) {
      for (const Piece& piece : slab.pieces) {
        const auto kind = schedule.placements[piece.tensor].kind;
        if ((kind == Placement::Kind::replicated) == replicated) append(piece.tensor);
      }
    }
  }
  for (std::uint32_t i = 0; i < schedule.cuts.size(); ++i) append(i);
  return order;
}

class DestinationProof {
 public:
  explicit DestinationProof(const Schedule& schedule)
      : schedule_(schedule),
        tensors_(schedule.catalog.tensors()),
        planner_(schedule),
        written_(schedule.world, std::vector<std::uint64_t>(tensors_.size())),
        runs_(schedule.world),
        in_reading_order_(reading_order(schedule)) {}

  void check() {
    for (std::uint32_t wave = 0; wave < schedule_.waves; ++wave) check_wave(wave);
    for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) {
      check_held(rank);
      require(disjoint(runs_[rank]), "two runs overlap in an arena");
    }
  }

 private:
  void check_wave(std::uint32_t wave) {
    incoming_.clear();
    for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) {
      incoming_.push_back(planner_.incoming(wave, rank));
      note_runs(rank);
    }
    std::size_t sends = 0;
    std::size_t receives = 0;
    for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) {
      const Outgoing outgoing = planner_.outgoing(wave, rank);
      check_sends(outgoing.sends, rank);
      check_items(schedule_.slab(wave, rank), outgoing, rank);
      sends += outgoing.sends.size();
      receives += incoming_[rank].receives.size();
    }
    // Each send has a receive of its own, so equal numbers leave no receive without a send.
    require(sends == receives, "a receive has no matching send");
  }

  // Part 3.
  void check_sends(const std::vector<Run>& sends, std::uint32_t rank) const {
    for (std::size_t i = 0; i < sends.size(); ++i) {
      require(sends[i].peer < schedule_.world && sends[i].peer != rank,
              "a run is sent to no other rank");
      require(i == 0 || sends[i - 1].peer < sends[i].peer, "two runs are sent to one rank");
      require(at(incoming_[sends[i].peer].receives, rank).bytes == sends[i].bytes,
              "a send and its receive differ in size");
    }
  }

  void note_runs(std::uint32_t rank) {
    const Incoming& mine = incoming_[rank];
    for (const Run& receive : mine.receives) note_run(receive, rank);
    const std::vector<Run>& reference = incoming_.front().broadcasts;
    require(mine.broadcasts.size() == reference.size(), "ranks differ in their broadcasts");
    for (std::size_t i = 0; i < reference.size(); ++i) {
      require(mine.broadcasts[i].peer == reference[i].peer &&
                  mine.broadcasts[i].bytes == reference[i].bytes,
              "ranks differ in a broadcast");
      note_run(mine.broadcasts[i], rank);
    }
  }

  void note_run(const Run& run, std::uint32_t rank) {
    require(core::in_bounds(run.offset, run.bytes, schedule_.ranks[rank].arena_bytes),
            "a run ends after the arena");
    runs_[rank].push_back({run.offset, run.offset + run.bytes});
  }

  // The run of `peer`, which must exist.
  static const Run& at(const std::vector<Run>& runs, std::uint32_t peer) {
    const Run* run = find(runs, peer);
    require(run != nullptr, "a message has no other side");
    return *run;
  }

  static const Run* find(const std::vector<Run>& runs, std::uint32_t peer) {
    const auto at = std::lower_bound(runs.begin(), runs.end(), peer,
                                     [](const Run& run, std::uint32_t p) { return run.peer < p; });
    return at != runs.end() && at->peer == peer ? &*at : nullptr;
  }

  // Part 4, for what `rank` packs in a wave.
  void check_items(const Slab& slab, const Outgoing& mine, std::uint32_t rank) {
    last_tensor_ = no_tensor;
    auto target = mine.sends.begin();
    for (const PackItem& item : mine.items) {
      if (item.target == PackTarget::arena) {
        check_own(slab, item, rank);
        continue;
      }
      while (target != mine.sends.end() && !writes_to(item, *target)) ++target;
      require(target != mine.sends.end(), "a pack item writes outside all runs");
      check_sent(slab, item, *target, rank);
    }
    for (const Run& send : mine.sends) {
      if (send.memory == RunMemory::slab) check_sent_from_slab(slab, send, rank);
    }
  }

  static bool writes_to(const PackItem& item, const Run& send) {
    return send.memory == RunMemory::pack_buffer && item.destination >= send.offset &&
           item.destination - send.offset < send.bytes;
  }

  void check_own(const Slab& slab, const PackItem& item, std::uint32_t rank) {
    const Piece& piece = piece_of(slab, item.source);
    check_written(piece, item, rank, item.destination);
    if (schedule_.placements[piece.tensor].kind != Placement::Kind::replicated) return;
    if (schedule_.world > 1) check_broadcast(piece, item, rank);
  }

  // What lies at the same place of the broadcast run must be at the right place on every rank.
  void check_broadcast(const Piece& piece, const PackItem& item, std::uint32_t root) {
    const Run& mine = at(incoming_[root].broadcasts, root);
    require(item.destination >= mine.offset &&
                core::in_bounds(item.destination - mine.offset,
                                item.rows * destination_row_bytes(item), mine.bytes),
            "a replicated tensor is outside the broadcast");
    for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) {
      if (rank == root) continue;
      const Run& theirs = at(incoming_[rank].broadcasts, root);
      check_written(piece, item, rank, theirs.offset + (item.destination - mine.offset));
    }
  }

  void check_sent(const Slab& slab, const PackItem& item, const Run& send, std::uint32_t rank) {
    const Run& receive = at(incoming_[send.peer].receives, rank);
    const std::uint64_t offset = item.destination - send.offset;
    const std::uint64_t span =
        (item.rows - 1) * item.destination_stride + destination_row_bytes(item);
    require(core::in_bounds(offset, span, send.bytes), "a pack item writes past its run");
    require(core::in_bounds(send.offset, send.bytes, schedule_.ranks[rank].pack_bytes),
            "a run ends after the pack buffer");
    check_written(piece_of(slab, item.source), item, send.peer, receive.offset + offset);
  }

  void check_sent_from_slab(const Slab& slab, const Run& send, std::uint32_t rank) {
    const Piece& piece = piece_of(slab, send.offset);
    const TensorInfo& tensor = tensors_[piece.tensor];
    // One block of the slab: part of a row, or several rows that the receiver keeps whole.
    const Cut& cut = schedule_.cuts[piece.tensor];
    const std::uint64_t rows = std::max<std::uint64_t>(1, send.bytes / cut.row_bytes);
    const std::uint64_t row_bytes = send.bytes / rows;
    const PackItem item{send.offset,
                        0,
                        rows,
                        row_bytes,
                        row_bytes,
                        row_bytes,
                        tensor.dtype,
                        tensor.dtype,
                        PackTarget::pack_buffer};
    check_written(piece, item, send.peer, at(incoming_[send.peer].receives, rank).offset);
  }

  static const Piece& piece_of(const Slab& slab, std::uint64_t slab_offset) {
    const auto after = std::upper_bound(
        slab.pieces.begin(), slab.pieces.end(), slab_offset,
        [](std::uint64_t offset, const Piece& piece) { return offset < piece.slab_offset; });
    require(after != slab.pieces.begin(), "a pack item reads outside all pieces");
    return *(after - 1);
  }

  // The heart of part 4: `item`, of `piece`, ends up at `arena_offset` on `rank`. Its stored bytes
  // must be columns that the rank keeps, all in one interval, and go where the shard has them. As
  // stored → shard is one-to-one, ascending items that do not overlap in the slab do not overlap in
  // the arena, and the count of bytes then tells whether all of the shard is written.
  void check_written(const Piece& piece, const PackItem& item, std::uint32_t rank,
                     std::uint64_t arena_offset) {
    const std::uint32_t index = piece.tensor;
    const TensorInfo& tensor = tensors_[index];
    const Cut& cut = schedule_.cuts[index];
    columns_.assign(tensor, schedule_.placements[index], cut, rank, schedule_.world);

    const std::uint64_t stored = piece.begin + (item.source - piece.slab_offset);
    const std::uint64_t stored_end = stored + (item.rows - 1) * item.source_stride + item.row_bytes;
    if (item.rows == 0 || item.row_bytes == 0 || stored_end > piece.end) {
      fail_proof(tensor.name, "a pack item reads outside its piece");
    }
    if (item.from != tensor.dtype || item.to != schedule_.dtypes[index]) {
      fail_proof(tensor.name, "a pack item has the wrong types");
    }
    check_ascending(index, rank, item);
    check_place(index, cut, stored, item, rank, arena_offset);
    written_[rank][index] += item.rows * destination_row_bytes(item);
  }

  void check_place(std::uint32_t index, const Cut& cut, std::uint64_t stored, const PackItem& item,
                   std::uint32_t rank, std::uint64_t arena_offset) const {
    const std::string& tensor = tensors_[index].name;
    const std::uint64_t column = stored % cut.row_bytes;
    std::uint64_t shard_column = 0;
    const Columns* kept = nullptr;
    for (const Columns& candidate : columns_.columns()) {
      if (column >= candidate.begin && column < candidate.end) kept = &candidate;
      if (kept != nullptr) break;
      shard_column += candidate.size();
    }
    if (kept == nullptr || item.row_bytes > kept->end - column) {
      fail_proof(tensor,
                 "a pack item sends bytes that rank " + std::to_string(rank) + " does not keep");
    }
    if (item.rows > 1 &&
        (item.source_stride != cut.row_bytes ||
         item.destination_stride != converted_bytes(columns_.row_bytes(), item.from, item.to))) {
      fail_proof(tensor, "a pack item has the wrong strides");
    }
    const std::uint64_t shard_offset =
        stored / cut.row_bytes * columns_.row_bytes() + shard_column + (column - kept->begin);
    const std::uint64_t tensor_offset = schedule_.arena_offsets[rank][index];
    if (tensor_offset == not_held ||
        arena_offset != tensor_offset + converted_bytes(shard_offset, item.from, item.to)) {
      fail_proof(tensor, "bytes go to the wrong place on rank " + std::to_string(rank));
    }
  }

  // Items of one piece and destination follow each other; rows are the same, columns ascend. Items
  // that are checked once per receiver of a broadcast are each the only one of their piece.
  void check_ascending(std::uint32_t index, std::uint32_t rank, const PackItem& item) {
    if (index == last_tensor_ && rank == last_rank_) {
      if (item.source < last_source_end_ || (item.rows > 1 && item.rows != last_rows_)) {
        fail_proof(tensors_[index].name, "bytes are packed twice");
      }
    }
    last_tensor_ = index;
    last_rank_ = rank;
    last_rows_ = item.rows;
    last_source_end_ = item.source + item.row_bytes;
  }

  // Part 2, and the end of part 4.
  void check_held(std::uint32_t rank) {
    std::vector<Range> ranges;
    ranges.reserve(tensors_.size());
    for (const std::uint32_t i : in_reading_order_) {
      const Cut& cut = schedule_.cuts[i];
      columns_.assign(tensors_[i], schedule_.placements[i], cut, rank, schedule_.world);
      const std::uint64_t bytes =
          converted_bytes(cut.rows * columns_.row_bytes(), tensors_[i].dtype, schedule_.dtypes[i]);
      if (written_[rank][i] != bytes) {
        fail_proof(tensors_[i].name, std::to_string(written_[rank][i]) + " of " +
                                         std::to_string(bytes) + " bytes are written on rank " +
                                         std::to_string(rank));
      }
      if (bytes != 0) check_in_arena(i, rank, bytes, ranges);
    }
    require(disjoint(std::move(ranges)), "two tensors overlap in an arena");
  }

  void check_in_arena(std::uint32_t index, std::uint32_t rank, std::uint64_t bytes,
                      std::vector<Range>& ranges) const {
    const std::uint64_t offset = schedule_.arena_offsets[rank][index];
    if (offset % arena_alignment != 0 ||
        !core::in_bounds(offset, bytes, schedule_.ranks[rank].arena_bytes)) {
      fail_proof(tensors_[index].name, "it is misaligned or ends after the arena");
    }
    ranges.push_back({offset, offset + bytes});
  }

  static constexpr std::uint32_t no_tensor = ~std::uint32_t{0};

  const Schedule& schedule_;
  std::span<const TensorInfo> tensors_;
  TransferPlanner planner_;
  RankColumns columns_;
  std::vector<Incoming> incoming_;                   // of the wave being checked, by rank
  std::vector<std::vector<std::uint64_t>> written_;  // [rank][tensor], bytes
  std::vector<std::vector<Range>> runs_;             // [rank], arena ranges of messages
  std::vector<std::uint32_t> in_reading_order_;      // every tensor once
  std::uint32_t last_tensor_ = no_tensor;
  std::uint32_t last_rank_ = 0;
  std::uint64_t last_rows_ = 0;
  std::uint64_t last_source_end_ = 0;
};

}  // namespace

void prove_writing(const Schedule& schedule) {
  DestinationProof(schedule).check();
}

}  // namespace safeshuffle::plan
