#include "plan/proof_rank.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "core/arithmetic.hpp"
#include "plan/arena.hpp"
#include "plan/proof_item.hpp"
#include "plan/proof_support.hpp"
#include "plan/transfers.hpp"
#include "plan/waves.hpp"

namespace safeshuffle::plan {
namespace {

// Ranks [first, end).
struct RankClass {
  std::uint32_t first = 0;
  std::uint32_t end = 0;
};

// Consecutive ranks whose shards have the same sizes, tensor by tensor.
std::vector<RankClass> rank_classes(const Schedule& schedule, const Geometries& geometries) {
  std::vector<bool> begins(std::size_t{schedule.world} + 1);
  std::vector<RankRun> runs;
  for (std::size_t i = 0; i < geometries.example.size(); ++i) {
    if (geometries.tensors[i] == 0) continue;
    rank_runs(schedule, geometries.example[i], runs);
    for (const RankRun& run : runs) begins[run.first] = begins[run.end] = true;
  }
  std::vector<RankClass> classes;
  for (std::uint32_t rank = 0; rank < schedule.world; ++rank) {
    if (rank == 0 || begins[rank]) classes.push_back({rank, rank});
    ++classes.back().end;
  }
  return classes;
}

class RankProof {
 public:
  explicit RankProof(const Schedule& schedule)
      : schedule_(schedule),
        tensors_(schedule.catalog.tensors()),
        groups_(read_groups(schedule)),
        transfers_(schedule),
        items_(schedule),
        in_broadcast_(tensors_.size(), not_held),
        broadcast_bytes_(groups_.size(), not_held) {}

  void check(const Geometries& geometries) {
    check_arena_order();
    for (const RankClass& ranks : rank_classes(schedule_, geometries)) check_class(ranks);
  }

 private:
  // The order has every tensor that is read once.
  void check_arena_order() const {
    std::vector<bool> seen(tensors_.size());
    for (const std::uint32_t tensor : schedule_.arena_order) {
      require(tensor < tensors_.size(), "an unknown tensor is in the arena");
      if (seen[tensor]) fail_proof(tensors_[tensor].name, "it is in the arena twice");
      seen[tensor] = true;
    }
    for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
      if (is_read(schedule_, i) && !seen[i]) fail_proof(tensors_[i].name, "it is in no arena");
    }
  }

  // All ranks of a class have the same arena and get the same runs as the first, because these
  // depend on the sizes of shards only. Which bytes are in a shard differs; prove_packing covers
  // that.
  void check_class(const RankClass& ranks) {
    rank_ = ranks.first;
    offsets_ = arena_offsets(schedule_, rank_);
    arena_bytes_ = std::numeric_limits<std::uint64_t>::max();
    for (std::uint32_t rank = ranks.first; rank < ranks.end; ++rank) {
      arena_bytes_ = std::min(arena_bytes_, schedule_.ranks[rank].arena_bytes);
    }
    check_tensors();
    written_.assign(tensors_.size(), 0);
    runs_.clear();
    for (std::size_t i = 0; i < groups_.size(); ++i) check_group(i, ranks);
    require(disjoint(runs_), "two runs overlap in an arena");
    check_written();
  }

  void check_tensors() {
    std::vector<Range> ranges;
    ranges.reserve(schedule_.arena_order.size());
    for (const std::uint32_t tensor : schedule_.arena_order) {
      const std::uint64_t bytes = shard_bytes(schedule_, tensor, rank_, columns_);
      if (bytes == 0) continue;
      if (offsets_[tensor] % arena_alignment != 0 ||
          !core::in_bounds(offsets_[tensor], bytes, arena_bytes_)) {
        fail_proof(tensors_[tensor].name, "it is misaligned or ends after the arena");
      }
      ranges.push_back({offsets_[tensor], offsets_[tensor] + bytes});
    }
    require(disjoint(std::move(ranges)), "two tensors overlap in an arena");
  }

  void check_group(std::size_t index, const RankClass& ranks) {
    const ReadGroup& group = groups_[index];
    const std::uint32_t tensor = schedule_.reads[group.reader][group.first].tensor;
    if (Segments(schedule_.cuts[tensor], schedule_.window).count() > 1) {
      note_segmented(tensor);
      return;
    }
    slab_at(schedule_, group.wave, group.reader, slab_);
    const bool has_reader = group.reader >= ranks.first && group.reader < ranks.end;
    if (has_reader) check_own(group.reader);
    if (!has_reader || ranks.end - ranks.first > 1) check_received(group.reader);
    check_broadcast(group.reader, broadcast_bytes_[index]);
    for (const Segment& segment : slab_.segments) {
      written_[segment.tensor] += shard_bytes(schedule_, segment.tensor, rank_, columns_);
    }
  }

  // Its messages are parts of its own shard, one after the other.
  void note_segmented(std::uint32_t tensor) {
    if (written_[tensor] != 0) return;
    written_[tensor] = shard_bytes(schedule_, tensor, rank_, columns_);
    note_run(offsets_[tensor], written_[tensor]);
  }

  void note_run(std::uint64_t offset, std::uint64_t bytes) {
    if (bytes == 0) return;
    require(core::in_bounds(offset, bytes, arena_bytes_), "a run ends after the arena");
    runs_.push_back({offset, offset + bytes});
  }

  void check_received(std::uint32_t reader) {
    const Run receive = transfers_.run_from(slab_, reader, rank_, false, offsets_);
    packed_.clear();
    const Run send = transfers_.pack_run(slab_, rank_, 0, packed_);
    require(send.bytes == receive.bytes, "a send and its receive differ in size");
    if (receive.bytes == 0) return;
    note_run(receive.offset, receive.bytes);
    const std::uint64_t sent = check_run(
        schedule_, slab_, send, packed_, items_, [&](const Segment& segment, std::uint64_t at) {
          return ItemProof::Place{rank_, receive.offset + at, offsets_[segment.tensor]};
        });
    std::uint64_t needed = 0;
    for (const Segment& segment : slab_.segments) {
      if (is_replicated(schedule_, segment.tensor)) continue;
      needed += shard_bytes(schedule_, segment.tensor, rank_, columns_);
    }
    require(sent == needed, "a run does not have all that its receiver keeps of the slab");
  }

  // A broadcast brings what is at one place of the root's run to the same place of every rank's.
  void check_broadcast(std::uint32_t reader, std::uint64_t& bytes) {
    const Run run = transfers_.run_from(slab_, reader, rank_, true, offsets_);
    if (bytes == not_held) bytes = run.bytes;
    require(bytes == run.bytes, "ranks differ in a broadcast");
    note_run(run.offset, run.bytes);
    for (const Segment& segment : slab_.segments) {
      if (!is_replicated(schedule_, segment.tensor)) continue;
      const std::uint64_t size = shard_bytes(schedule_, segment.tensor, rank_, columns_);
      const std::uint64_t offset = offsets_[segment.tensor] - run.offset;
      std::uint64_t& expected = in_broadcast_[segment.tensor];
      if (expected == not_held) expected = offset;
      if (offset != expected || !core::in_bounds(offset, size, run.bytes)) {
        fail_proof(tensors_[segment.tensor].name, "ranks differ in its place in a broadcast");
      }
    }
  }

  // What the reader keeps itself, and what it broadcasts.
  void check_own(std::uint32_t reader) {
    packed_.clear();
    transfers_.pack_own(slab_, reader, offsets_, packed_);
    items_.start();
    std::uint64_t packed = 0;
    for (const PackItem& item : packed_) {
      require(item.target == PackTarget::arena, "a rank's own shard is packed for sending");
      const Segment& segment = segment_of(slab_, item.source);
      packed += items_.check(segment, item, {reader, item.destination, offsets_[segment.tensor]});
    }
    std::uint64_t needed = 0;
    for (const Segment& segment : slab_.segments) {
      needed += shard_bytes(schedule_, segment.tensor, reader, columns_);
    }
    require(packed == needed, "a rank does not pack all that it keeps of its own slab");
  }

  void check_written() {
    for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
      const std::uint64_t bytes = shard_bytes(schedule_, i, rank_, columns_);
      if (written_[i] == bytes) continue;
      fail_proof(tensors_[i].name, std::to_string(written_[i]) + " of " + std::to_string(bytes) +
                                       " bytes are written on rank " + std::to_string(rank_));
    }
  }

  const Schedule& schedule_;
  std::span<const TensorInfo> tensors_;
  std::vector<ReadGroup> groups_;
  SlabTransfers transfers_;
  ItemProof items_;
  RankColumns columns_;
  std::vector<std::uint64_t> in_broadcast_;     // by tensor: offset in its broadcast, once known
  std::vector<std::uint64_t> broadcast_bytes_;  // by group, once known

  // Of the class being checked.
  std::uint32_t rank_ = 0;
  std::vector<std::uint64_t> offsets_;
  std::uint64_t arena_bytes_ = 0;
  std::vector<std::uint64_t> written_;  // by tensor
  std::vector<Range> runs_;

  Slab slab_;  // scratch
  std::vector<PackItem> packed_;
};

}  // namespace

void prove_arenas(const Schedule& schedule, const Geometries& geometries) {
  RankProof(schedule).check(geometries);
}

}  // namespace safeshuffle::plan
