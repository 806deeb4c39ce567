#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/arithmetic.hpp"
#include "plan/arena.hpp"
#include "plan/proof_item.hpp"
#include "plan/proof_parts.hpp"
#include "plan/shard.hpp"
#include "plan/transfers.hpp"
#include "plan/waves.hpp"

namespace safeshuffle::plan {
namespace {

// Ranks [first, end) of the first replica.
struct RankClass {
  std::uint32_t first = 0;
  std::uint32_t end = 0;
};

// Consecutive ranks whose shares and shards have the same sizes, tensor by tensor.
std::vector<RankClass> rank_classes(const Schedule& schedule, const Geometries& geometries) {
  std::vector<bool> begins(std::size_t{schedule.replica_size} + 1);
  std::vector<RankRun> runs;
  for (std::size_t i = 0; i < geometries.example.size(); ++i) {
    if (geometries.tensors[i] == 0) continue;
    rank_runs(schedule, geometries.example[i], runs);
    for (const RankRun& run : runs) begins[run.first] = begins[run.end] = true;
  }
  RankColumns columns;
  for (const TargetGroup& group : target_groups(schedule)) {
    std::uint64_t before = shard_bytes(schedule, group.example, 0, columns);
    for (std::uint32_t rank = 1; rank < schedule.replica_size; ++rank) {
      const std::uint64_t bytes = shard_bytes(schedule, group.example, rank, columns);
      if (bytes != std::exchange(before, bytes)) begins[rank] = true;
    }
  }
  std::vector<RankClass> classes;
  for (std::uint32_t rank = 0; rank < schedule.replica_size; ++rank) {
    if (rank == 0 || begins[rank]) classes.push_back({rank, rank});
    ++classes.back().end;
  }
  return classes;
}

class RankProof {
 public:
  RankProof(const Schedule& schedule, const Geometries& geometries)
      : schedule_(schedule),
        geometries_(geometries),
        tensors_(schedule.catalog.tensors()),
        groups_(read_groups(schedule)),
        transfers_(schedule),
        items_(schedule),
        in_broadcast_(schedule.exchanged_waves == 0 ? 0 : tensors_.size(), not_held),
        in_landing_(anything_lands(schedule) ? tensors_.size() : 0),
        broadcast_bytes_(groups_.size(), not_held) {}

  void check() {
    check_arena_order();
    for (const RankClass& ranks : rank_classes(schedule_, geometries_)) check_class(ranks);
  }

 private:
  // The order has every target that is read once.
  void check_arena_order() const {
    std::vector<bool> seen(schedule_.targets.size());
    for (const std::uint32_t target : schedule_.arena_order) {
      require(target < seen.size(), "an unknown tensor is in the arena");
      if (seen[target]) fail_proof(name(target), "it is in the arena twice");
      seen[target] = true;
    }
    if (fills_lent_memory(schedule_)) {
      require(schedule_.arena_order.empty(), "what fills lent memory is in an arena");
      return;
    }
    for (const Use& use : schedule_.uses) {
      if (tensors_[use.tensor].bytes != 0 && !seen[use.target]) {
        fail_proof(name(use.target), "it is in no arena");
      }
    }
  }

  const std::string& name(std::uint32_t target) const {
    return name_of(schedule_.targets[target], schedule_.catalog);
  }

  // All ranks of a class have the same arena and get the same runs as the first, because these
  // depend on the sizes of shards only. Which bytes are in a shard differs; prove_packing covers
  // that. So do ranks of other replicas with the same shards: what a twin passes on to them goes
  // from its place to the same place.
  void check_class(const RankClass& ranks) {
    rank_ = ranks.first;
    arena_bytes_ = std::numeric_limits<std::uint64_t>::max();
    for (std::uint32_t rank = ranks.first; rank < ranks.end; ++rank) note_memory(rank);
    find_shares();
    place_targets();
    written_.assign(tensors_.size(), 0);
    landed_.assign(schedule_.world, 0);
    landed_own_.assign(schedule_.world, 0);
    slices_landed_ = 0;
    runs_.clear();
    for (std::size_t i = 0; i < groups_.size(); ++i) check_group(i, ranks);
    require(disjoint(runs_), "two runs overlap in an arena");
    for (std::uint32_t rank = ranks.first; rank < ranks.end; ++rank) check_landing_fits(rank);
    check_written();
  }

  // Of the rank and its twins.
  void note_memory(std::uint32_t rank) {
    for (std::uint32_t replica = 0; replica < schedule_.replicas; ++replica) {
      const RankSummary& twin = schedule_.ranks[twin_of(schedule_, rank, replica)];
      arena_bytes_ = std::min(arena_bytes_, twin.arena_bytes);
    }
  }

  // Of the rank and its twins: to the latter, what differs at the reader makes no difference.
  void check_landing_fits(std::uint32_t rank) const {
    const std::uint64_t of_all = std::accumulate(landed_.begin(), landed_.end(), std::uint64_t{0});
    const std::uint64_t landed = of_all - landed_[rank] + landed_own_[rank];
    for (std::uint32_t replica = 0; replica < schedule_.replicas; ++replica) {
      const RankSummary& twin = schedule_.ranks[twin_of(schedule_, rank, replica)];
      require(std::max(landed, slices_landed_) <= twin.landing_bytes,
              "a run ends after the landing buffer");
    }
  }

  bool includes(const RankClass& ranks, std::uint32_t rank) const {
    const std::uint32_t shard = shard_index(schedule_, rank);
    return shard >= ranks.first && shard < ranks.end;
  }

  void place_targets() {
    const std::vector<std::uint64_t> offsets = arena_offsets(schedule_, rank_);
    check_targets(offsets);
    places_ = places_of_tensors(schedule_, offsets);
  }

  void check_targets(const std::vector<std::uint64_t>& offsets) {
    std::uint64_t end = 0;
    for (const std::uint32_t target : schedule_.arena_order) {
      const std::uint64_t bytes = shard_bytes(schedule_, target, rank_, columns_);
      if (bytes == 0) continue;
      if (offsets[target] % arena_alignment != 0 ||
          !core::in_bounds(offsets[target], bytes, arena_bytes_)) {
        fail_proof(name(target), "it is misaligned or ends after the arena");
      }
      require(offsets[target] >= end, "two tensors overlap in an arena");
      end = offsets[target] + bytes;
    }
  }

  void check_group(std::size_t index, const RankClass& ranks) {
    const ReadGroup& group = groups_[index];
    const std::uint32_t tensor = group.reads.front().tensor;
    const bool exchanged = is_exchanged(schedule_, group.wave);
    const std::uint32_t reader = exchanged ? group.reader : rank_;
    const Segments segments(schedule_.cuts[tensor], schedule_.window);
    if (segments.count() > 1) {
      note_segmented(tensor, segments, reader);
      return;
    }
    slab_at(schedule_, group.wave, reader, slab_);
    const bool has_reader = includes(ranks, reader);
    if (has_reader) check_own(reader);
    if (exchanged) {
      if (!has_reader || ranks.end - ranks.first > 1) check_received(reader);
      check_broadcast(reader, broadcast_bytes_[index]);
    }
    note_landing(tensor, reader, check_landing(reader));
    for (const Segment& segment : slab_.segments) {
      written_[segment.tensor] += share(segment.tensor);
    }
  }

  void find_shares() {
    shares_.clear();
    for (const std::uint32_t example : geometries_.example) {
      shares_.push_back(share_bytes(schedule_, example, rank_, columns_));
    }
  }

  std::uint64_t share(std::uint32_t tensor) const { return shares_[geometries_.of_tensor[tensor]]; }

  // Its messages are parts of its own share, one after the other, or land one at a time.
  void note_segmented(std::uint32_t tensor, const Segments& segments, std::uint32_t reader) {
    const std::uint64_t bytes = share(tensor);
    if (schedule_.lands[tensor]) {
      const std::uint64_t largest = converted_bytes(schedule_, tensor, segments.step());
      const std::uint64_t landed = std::min(bytes, largest);
      note_landing(tensor, reader, {landed, lands_at_reader(schedule_, tensor) ? landed : 0});
    } else if (written_[tensor] == 0) {
      note_run(places_[tensor], bytes);
    }
    written_[tensor] = bytes;
  }

  // What lands of one slab.
  struct Landed {
    std::uint64_t at_others = 0;
    std::uint64_t at_reader = 0;
  };

  // Runs of different readers may land in one wave; those of one reader, in different ones, and so
  // do slices.
  void note_landing(std::uint32_t tensor, std::uint32_t reader, const Landed& landed) {
    if (schedule_.sliced[tensor]) {
      note_most(slices_landed_, landed.at_reader);
    } else {
      note_most(landed_[reader], landed.at_others);
      note_most(landed_own_[reader], landed.at_reader);
    }
  }

  static void note_most(std::uint64_t& most, std::uint64_t bytes) {
    most = std::max(most, core::align_up(bytes, arena_alignment));
  }

  void note_run(std::uint64_t offset, std::uint64_t bytes) {
    if (bytes == 0) return;
    require(core::in_bounds(offset, bytes, arena_bytes_), "a run ends after the arena");
    runs_.push_back({offset, offset + bytes});
  }

  void check_received(std::uint32_t reader) {
    const Run receive = transfers_.run_from(slab_, reader, rank_, false, places_);
    packed_.clear();
    const Run send = transfers_.prepare_send(slab_, rank_, false, 0, packed_);
    require(send.bytes == receive.bytes, "a send and its receive differ in size");
    if (receive.bytes == 0) return;
    note_run(receive.offset, receive.bytes);
    const std::uint64_t sent = check_run(
        schedule_, slab_, send, packed_, items_, [&](const Segment& segment, std::uint64_t at) {
          return ItemProof::Place{rank_, receive.offset + at, place(segment)};
        });
    require(sent == kept_of_slab({false, false}),
            "a run does not have all that its receiver keeps of the slab");
  }

  std::uint64_t place(const Segment& segment) const {
    require(places_[segment.tensor] != not_held, "a tensor has no place in the arena");
    return places_[segment.tensor];
  }

  bool takes(const Segment& segment, Route route) const {
    return schedule_.lands[segment.tensor] == route.lands &&
           is_replicated(schedule_, segment.tensor) == route.replicated;
  }

  std::uint64_t kept_of_slab(Route route) const {
    std::uint64_t bytes = 0;
    for (const Segment& segment : slab_.segments) {
      if (takes(segment, route)) bytes += share(segment.tensor);
    }
    return bytes;
  }

  // What lands, of a slab of whole tensors: the reader's own share as well. Returns its bytes.
  Landed check_landing(std::uint32_t reader) {
    Landed landed;
    for (const bool replicated : {false, true}) {
      const Route route{replicated, true};
      const Run run = transfers_.landing_run(slab_, reader, rank_, replicated, 0);
      landed.at_others += core::align_up(run.bytes, arena_alignment);
      packed_.clear();
      const Run packed = replicated ? transfers_.pack_run(slab_, rank_, route, 0, packed_)
                                    : transfers_.prepare_send(slab_, rank_, true, 0, packed_);
      require(packed.bytes == run.bytes, "what lands is not what was packed for it");
      if (run.bytes != 0) check_landed(packed, route);
    }
    for (const Segment& segment : slab_.segments) {
      if (!lands_at_reader(schedule_, segment.tensor)) continue;
      landed.at_reader += core::align_up(share(segment.tensor), arena_alignment);
    }
    return landed;
  }

  // Shares land one after the other, aligned.
  void check_landed(const Run& packed, Route route) {
    std::uint64_t free_from = 0;
    for (const Segment& segment : slab_.segments) {
      const std::uint64_t bytes = takes(segment, route) ? share(segment.tensor) : 0;
      if (bytes == 0) continue;
      in_landing_[segment.tensor] = free_from;
      free_from = core::align_up(free_from + bytes, arena_alignment);
    }
    const std::uint64_t landed = check_run(
        schedule_, slab_, packed, packed_, items_, [&](const Segment& segment, std::uint64_t at) {
          return ItemProof::Place{rank_, at, in_landing_[segment.tensor]};
        });
    require(landed == kept_of_slab(route), "not all that a rank keeps of a slab lands");
  }

  // A broadcast brings what is at one place of the root's run to the same place of every rank's.
  void check_broadcast(std::uint32_t reader, std::uint64_t& bytes) {
    const Run run = transfers_.run_from(slab_, reader, rank_, true, places_);
    if (bytes == not_held) bytes = run.bytes;
    require(bytes == run.bytes, "ranks differ in a broadcast");
    note_run(run.offset, run.bytes);
    for (const Segment& segment : slab_.segments) {
      if (!takes(segment, {true, false})) continue;
      const std::uint64_t size = share(segment.tensor);
      const std::uint64_t offset = place(segment) - run.offset;
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
    transfers_.pack_own(slab_, reader, places_, packed_);
    items_.start();
    std::uint64_t packed = 0;
    for (const PackItem& item : packed_) {
      require(item.target == PackTarget::arena, "a rank's own shard is packed for sending");
      const Segment& segment = segment_of(slab_, item.source);
      packed += items_.check(segment, item, {reader, item.destination, place(segment)});
    }
    std::uint64_t needed = 0;
    for (const Segment& segment : slab_.segments) {
      if (schedule_.lands[segment.tensor]) continue;
      needed += share_bytes(schedule_, segment.tensor, reader, columns_);
    }
    require(packed == needed, "a rank does not pack all that it keeps of its own slab");
  }

  void check_written() {
    for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
      const std::uint64_t bytes = share(i);
      if (written_[i] == bytes) continue;
      fail_proof(tensors_[i].name, std::to_string(written_[i]) + " of " + std::to_string(bytes) +
                                       " bytes are written on rank " + std::to_string(rank_));
    }
  }

  const Schedule& schedule_;
  const Geometries& geometries_;
  std::span<const TensorInfo> tensors_;
  std::vector<ReadGroup> groups_;
  SlabTransfers transfers_;
  ItemProof items_;
  RankColumns columns_;
  std::vector<std::uint64_t> in_broadcast_;     // by tensor: offset in its broadcast, once known
  std::vector<std::uint64_t> in_landing_;       // by tensor: offset in what lands of the slab
  std::vector<std::uint64_t> broadcast_bytes_;  // by group, once known

  // Of the class being checked.
  std::uint32_t rank_ = 0;
  std::vector<std::uint64_t> shares_;  // by geometry
  std::vector<std::uint64_t> places_;  // by tensor
  std::uint64_t arena_bytes_ = 0;
  std::vector<std::uint64_t> written_;     // by tensor, bytes of shares
  std::vector<std::uint64_t> landed_;      // by reader, the most in any wave
  std::vector<std::uint64_t> landed_own_;  // the same, at the reader itself
  std::uint64_t slices_landed_ = 0;
  std::vector<Range> runs_;

  Slab slab_;  // scratch
  std::vector<PackItem> packed_;
};

}  // namespace

void prove_arenas(const Schedule& schedule, const Geometries& geometries) {
  RankProof(schedule, geometries).check();
}

}  // namespace safeshuffle::plan
