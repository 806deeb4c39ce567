#include "plan/proof.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"
#include "plan/cut.hpp"
#include "plan/transfers.hpp"
#include "plan/waves.hpp"

namespace safeshuffle::plan {
namespace {

[[noreturn]] void fail(const std::string& tensor, const std::string& cause) {
  raise({.kind = ErrorKind::plan,
         .file = {},
         .tensor = tensor,
         .offset = {},
         .cause = "the plan is not provable: " + cause});
}

void require(bool condition, const char* cause) {
  if (!condition) fail({}, cause);
}

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

bool disjoint(std::vector<Range> ranges) {
  const auto by_begin = [](const Range& a, const Range& b) { return a.begin < b.begin; };
  if (!std::is_sorted(ranges.begin(), ranges.end(), by_begin)) {
    std::sort(ranges.begin(), ranges.end(), by_begin);
  }
  const auto overlap = [](const Range& a, const Range& b) { return b.begin < a.end; };
  return std::adjacent_find(ranges.begin(), ranges.end(), overlap) == ranges.end();
}

bool is_convertible(DType dtype) {
  return dtype == DType::F16 || dtype == DType::BF16 || dtype == DType::F32;
}

void check_tensors(const Schedule& schedule) {
  for (std::size_t i = 0; i < schedule.cuts.size(); ++i) {
    const TensorInfo& tensor = schedule.catalog.tensors()[i];
    if (schedule.cuts[i] != cut_of(tensor, schedule.placements[i])) {
      fail(tensor.name, "its cut is not that of its placement");
    }
    if (schedule.dtypes[i] != tensor.dtype &&
        !(is_convertible(tensor.dtype) && is_convertible(schedule.dtypes[i]))) {
      fail(tensor.name, "its type cannot be converted so");
    }
  }
}

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

// Part 1: reading.
class SourceProof {
 public:
  explicit SourceProof(const Schedule& schedule) : schedule_(schedule) {}

  void check() {
    require(schedule_.slabs.size() == std::size_t{schedule_.waves} * schedule_.world,
            "a slab is missing");
    file_ranges_.resize(schedule_.catalog.files().size());
    tensor_ranges_.resize(schedule_.catalog.tensors().size());
    for (std::size_t i = 0; i < schedule_.slabs.size(); ++i) {
      check_slab(schedule_.slabs[i], schedule_.ranks[i % schedule_.world].slab_bytes);
    }
    for (const auto& ranges : file_ranges_) require(disjoint(ranges), "a file range is read twice");
    for (std::size_t i = 0; i < tensor_ranges_.size(); ++i) check_tensor(i);
  }

 private:
  void check_slab(const Slab& slab, std::uint64_t capacity) {
    std::uint64_t free_from = 0;
    auto piece = slab.pieces.begin();
    for (const Extent& extent : slab.extents) {
      check_extent(extent, free_from, capacity);
      free_from = extent.slab_offset + extent.bytes;
      std::uint64_t covered = 0;
      for (; piece != slab.pieces.end() && covered < extent.bytes; ++piece) {
        check_piece(*piece, extent, covered);
        covered += piece->end - piece->begin;
      }
      require(covered == extent.bytes, "a file range does not hold the pieces read with it");
      file_ranges_[extent.file].push_back({extent.file_offset, extent.file_offset + extent.bytes});
    }
    require(piece == slab.pieces.end(), "a piece is not read");
  }

  void check_extent(const Extent& extent, std::uint64_t free_from, std::uint64_t capacity) const {
    require(extent.file < schedule_.catalog.files().size(), "a file range is of no file");
    const FileInfo& file = schedule_.catalog.files()[extent.file];
    require(core::in_bounds(extent.file_offset, extent.bytes, file.size),
            "a file range ends after the file");
    require(extent.slab_offset >= free_from, "two file ranges overlap in a slab");
    require(core::in_bounds(extent.slab_offset, extent.bytes, capacity),
            "a file range ends after the slab");
    require(extent.slab_offset % page_bytes == extent.file_offset % page_bytes,
            "a slab offset is not congruent to its file offset");
  }

  void check_piece(const Piece& piece, const Extent& extent, std::uint64_t offset_in_extent) {
    require(piece.tensor < tensor_ranges_.size(), "a piece is of no tensor");
    const TensorInfo& tensor = schedule_.catalog.tensors()[piece.tensor];
    if (piece.begin >= piece.end || piece.end > tensor.bytes) {
      fail(tensor.name, "a piece ends after the tensor");
    }
    if (tensor.file != extent.file ||
        tensor.file_offset + piece.begin != extent.file_offset + offset_in_extent ||
        piece.slab_offset != extent.slab_offset + offset_in_extent) {
      fail(tensor.name, "a piece does not lie where the file has it");
    }
    tensor_ranges_[piece.tensor].push_back({piece.begin, piece.end});
  }

  // Pieces lie in disjoint file ranges, so their sizes tell whether they are the whole tensor.
  void check_tensor(std::size_t index) const {
    const TensorInfo& tensor = schedule_.catalog.tensors()[index];
    const bool needed = schedule_.placements[index].kind != Placement::Kind::dropped;
    std::uint64_t read = 0;
    for (const Range& range : tensor_ranges_[index]) read += range.end - range.begin;
    if (read != (needed ? tensor.bytes : 0)) {
      fail(tensor.name,
           std::to_string(read) + " of " + std::to_string(tensor.bytes) + " bytes are read");
    }
  }

  const Schedule& schedule_;
  std::vector<std::vector<Range>> file_ranges_;
  std::vector<std::vector<Range>> tensor_ranges_;
};

// Parts 2 to 4: moving and writing.
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

  // The run of `peer`, which check_messages has shown to exist.
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
    return send.memory == RunMemory::send && item.destination >= send.offset &&
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
    const PackItem item{send.offset,     0,         rows,         row_bytes,
                        row_bytes,       row_bytes, tensor.dtype, tensor.dtype,
                        PackTarget::send};
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
      fail(tensor.name, "a pack item reads outside its piece");
    }
    if (item.from != tensor.dtype || item.to != schedule_.dtypes[index]) {
      fail(tensor.name, "a pack item has the wrong types");
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
      fail(tensor, "a pack item sends bytes that rank " + std::to_string(rank) + " does not keep");
    }
    if (item.rows > 1 &&
        (item.source_stride != cut.row_bytes ||
         item.destination_stride != converted_bytes(columns_.row_bytes(), item.from, item.to))) {
      fail(tensor, "a pack item has the wrong strides");
    }
    const std::uint64_t shard_offset =
        stored / cut.row_bytes * columns_.row_bytes() + shard_column + (column - kept->begin);
    const std::uint64_t tensor_offset = schedule_.arena_offsets[rank][index];
    if (tensor_offset == not_held ||
        arena_offset != tensor_offset + converted_bytes(shard_offset, item.from, item.to)) {
      fail(tensor, "bytes go to the wrong place on rank " + std::to_string(rank));
    }
  }

  // Items of one piece and destination follow each other; rows are the same, columns ascend. Items
  // that are checked once per receiver of a broadcast are each the only one of their piece.
  void check_ascending(std::uint32_t index, std::uint32_t rank, const PackItem& item) {
    if (index == last_tensor_ && rank == last_rank_) {
      if (item.source < last_source_end_ || (item.rows > 1 && item.rows != last_rows_)) {
        fail(tensors_[index].name, "bytes are packed twice");
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
        fail(tensors_[i].name, std::to_string(written_[rank][i]) + " of " + std::to_string(bytes) +
                                   " bytes are written on rank " + std::to_string(rank));
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
      fail(tensors_[index].name, "it is misaligned or ends after the arena");
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

void prove(const Schedule& schedule) {
  require(schedule.placements.size() == schedule.catalog.tensors().size() &&
              schedule.dtypes.size() == schedule.catalog.tensors().size() &&
              schedule.cuts.size() == schedule.catalog.tensors().size() &&
              schedule.arena_offsets.size() == schedule.world &&
              schedule.ranks.size() == schedule.world,
          "its tables have the wrong sizes");
  check_tensors(schedule);
  SourceProof(schedule).check();
  DestinationProof(schedule).check();
}

}  // namespace safeshuffle::plan
