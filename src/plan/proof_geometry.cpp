#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "core/arithmetic.hpp"
#include "plan/pack_load.hpp"
#include "plan/proof_item.hpp"
#include "plan/proof_parts.hpp"
#include "plan/transfers.hpp"
#include "plan/waves.hpp"

namespace safeshuffle::plan {
namespace {

class GeometryProof {
 public:
  GeometryProof(const Schedule& schedule, const Geometries& geometries)
      : schedule_(schedule),
        geometries_(geometries),
        transfers_(schedule),
        items_(schedule),
        places_(schedule.cuts.size()),
        whole_load_(geometries.example.size()) {}

  void check() {
    check_groups();
    find_segment_readers();
    auto readers = segment_readers_.begin();
    for (std::uint32_t i = 0; i < geometries_.example.size(); ++i) {
      const auto first = readers;
      while (readers != segment_readers_.end() && readers->first == i) ++readers;
      if (geometries_.tensors[i] != 0) check_geometry(i, {first, readers});
    }
    for (const ReadGroup& group : read_groups(schedule_)) {
      if (is_exchanged(schedule_, group.wave)) check_pack_buffer(group);
    }
  }

 private:
  using SegmentReader = std::pair<std::uint32_t, std::uint32_t>;  // geometry, reader

  void check_groups() const {
    for (std::uint32_t i = 0; i < schedule_.cuts.size(); ++i) {
      require(same_geometry(schedule_, i, geometries_.example[geometries_.of_tensor[i]]),
              "tensors that differ are grouped together");
    }
  }

  bool is_segmented(std::uint32_t tensor) const {
    return Segments(schedule_.cuts[tensor], schedule_.window).count() > 1;
  }

  void find_segment_readers() {
    for (std::uint32_t reader = 0; reader < schedule_.reads.size(); ++reader) {
      for (const Read& read : schedule_.reads[reader]) {
        if (!is_segmented(read.tensor)) continue;
        segment_readers_.emplace_back(geometries_.of_tensor[read.tensor], reader);
      }
    }
    std::sort(segment_readers_.begin(), segment_readers_.end());
    segment_readers_.erase(std::unique(segment_readers_.begin(), segment_readers_.end()),
                           segment_readers_.end());
  }

  void check_geometry(std::uint32_t geometry, std::span<const SegmentReader> readers) {
    const std::uint32_t tensor = geometries_.example[geometry];
    const Segments segments(schedule_.cuts[tensor], schedule_.window);
    const std::vector<std::uint64_t> indices = representative_segments(schedule_, tensor);
    if (is_replicated(schedule_, tensor)) {
      check_replicated(tensor, segments, indices);
      return;
    }
    if (schedule_.sliced[tensor]) {
      for_each_segment_share(schedule_, tensor, indices,
                             [&](std::uint32_t rank, const RankColumns& columns, std::size_t i) {
                               check_segment(tensor, segments, indices[i], rank, columns);
                             });
      return;
    }
    PackLoad load(indices.size());
    for_each_segment_share(schedule_, tensor, indices,
                           [&](std::uint32_t rank, const RankColumns& columns, std::size_t i) {
                             load.add(i,
                                      check_segment(tensor, segments, indices[i], rank, columns));
                           });
    load.sort();
    whole_load_[geometry] = load.most([](std::size_t) { return std::uint64_t{0}; });
    for (const SegmentReader& reader : readers) {
      check_pack_buffer(tensor, segments, indices, load, reader.second);
    }
  }

  // Every rank keeps the same columns.
  void check_replicated(std::uint32_t tensor, const Segments& segments,
                        std::span<const std::uint64_t> indices) {
    columns_.assign(schedule_, tensor, 0);
    for (const std::uint64_t index : indices) {
      const Range segment = segments.bytes(index);
      set_segment(tensor, segment, 0, columns_);
      if (schedule_.sliced[tensor]) set_part(0);
      check_own(0);
      if (!lands()) {
        const Run broadcast = transfers_.run_from(slab_, 0, 0, true, places_);
        require(broadcast.bytes == bytes_ && (bytes_ == 0 || broadcast.offset == prefix_),
                "a broadcast is not what was packed for it");
      }
      packed_.clear();
      require(transfers_.run_from(slab_, 0, 0, false, places_).bytes == 0 &&
                  transfers_.landing_run(slab_, 0, 0, false, 0).bytes == 0 &&
                  transfers_.prepare_send(slab_, 0, lands(), 0, packed_).bytes == 0,
              "a replicated tensor is sent as well");
    }
  }

  // Returns the aligned bytes of the run. Lines differ by whole rows only, so the first and the
  // last represent all; if slabs differ in their offset only, an aligned one, from which runs may
  // be sent directly, and an unaligned one represent all.
  std::uint64_t check_segment(std::uint32_t tensor, const Segments& segments, std::uint64_t index,
                              std::uint32_t rank, const RankColumns& columns) {
    for (const std::uint64_t line : {segments.lines() - 1, std::uint64_t{0}}) {
      const Range segment = segments.bytes(line * segments.per_line() + index);
      for (const std::uint64_t slab_offset : {std::uint64_t{0}, std::uint64_t{1}}) {
        set_segment(tensor, segment, slab_offset, columns);
        if (schedule_.sliced[tensor]) set_part(rank);
        check_own(rank);
        if (!schedule_.sliced[tensor]) check_sent(rank);
      }
      if (line == 0) break;
    }
    return core::align_up(bytes_, arena_alignment);
  }

  // The rank with these columns keeps `bytes_` of it, `prefix_` after the beginning of its share.
  void set_segment(std::uint32_t tensor, const Range& segment, std::uint64_t slab_offset,
                   const RankColumns& columns) {
    const Cut& cut = schedule_.cuts[tensor];
    slab_.segments.assign(1, Segment{tensor, segment.begin, segment.end, slab_offset});
    bytes_ =
        converted_bytes(schedule_, tensor, kept_bytes(cut, columns, segment.begin, segment.end));
    prefix_ = converted_bytes(schedule_, tensor, kept_before(cut, columns, segment.begin));
  }

  // Of the segment, leaves what the rank reads.
  void set_part(std::uint32_t rank) {
    Segment& segment = slab_.segments.front();
    const Range part =
        read_part(schedule_, segment.tensor, {segment.begin, segment.end}, rank, columns_);
    segment.begin = part.begin;
    segment.end = part.end;
  }

  bool lands() const { return schedule_.lands[slab_.segments.front().tensor]; }

  // Proves that the reader packs correctly what it keeps of its own segment. Its share begins at
  // the start of its arena, or else the segment lands at the start of the landing buffer.
  void check_own(std::uint32_t rank) {
    packed_.clear();
    if (lands()) {
      const bool replicated = is_replicated(schedule_, slab_.segments.front().tensor);
      const Run own = transfers_.pack_run(slab_, rank, {replicated, true}, 0, packed_);
      check_landed(own, rank);
      check_count(transfers_.landing_run(slab_, 0, rank, replicated, 0).bytes, bytes_, rank);
      return;
    }
    transfers_.pack_own(slab_, rank, places_, packed_);
    items_.start();
    std::uint64_t written = 0;
    for (const PackItem& item : packed_) {
      require(item.target == PackTarget::arena, "a rank's own shard is packed for sending");
      written += items_.check(slab_.segments.front(), item, {rank, item.destination, 0});
    }
    check_count(written, bytes_, rank);
  }

  void check_sent(std::uint32_t rank) {
    packed_.clear();
    const Run send = transfers_.prepare_send(slab_, rank, lands(), 0, packed_);
    require(transfers_.run_from(slab_, 0, rank, true, places_).bytes == 0 &&
                transfers_.landing_run(slab_, 0, rank, true, 0).bytes == 0,
            "what is sent is broadcast as well");
    if (lands()) {
      check_landed(send, rank);
      return;
    }
    const Run receive = transfers_.run_from(slab_, 0, rank, false, places_);
    require(send.bytes == receive.bytes, "a send and its receive differ in size");
    check_run_at(send, rank, receive.offset, 0);
  }

  void check_landed(const Run& run, std::uint32_t rank) { check_run_at(run, rank, 0, 0 - prefix_); }

  // Proves that a run that arrives at `offset` brings all of the segment that the rank keeps.
  void check_run_at(const Run& run, std::uint32_t rank, std::uint64_t offset,
                    std::uint64_t share_offset) {
    const std::uint64_t written =
        check_run(schedule_, slab_, run, packed_, items_, [&](const Segment&, std::uint64_t at) {
          return ItemProof::Place{rank, offset + at, share_offset};
        });
    check_count(written, bytes_, rank);
    check_count(run.bytes, bytes_, rank);
  }

  void check_count(std::uint64_t written, std::uint64_t needed, std::uint32_t rank) const {
    if (written == needed) return;
    fail_proof(schedule_.catalog.tensors()[slab_.segments.front().tensor].name,
               std::to_string(written) + " instead of " + std::to_string(needed) +
                   " bytes are written on rank " + std::to_string(rank));
  }

  // For tensors that are read in segments; the runs of one segment follow each other, aligned.
  void check_pack_buffer(std::uint32_t tensor, const Segments& segments,
                         std::span<const std::uint64_t> indices, const PackLoad& load,
                         std::uint32_t reader) {
    const Cut& cut = schedule_.cuts[tensor];
    columns_.assign(schedule_, tensor, reader);
    const std::uint64_t most = load.most([&](std::size_t i) {
      const Range segment = segments.bytes(indices[i]);
      const std::uint64_t own = kept_bytes(cut, columns_, segment.begin, segment.end);
      return core::align_up(converted_bytes(schedule_, tensor, own), arena_alignment);
    });
    require_pack_bytes(most, reader);
  }

  // For whole tensors.
  void check_pack_buffer(const ReadGroup& group) {
    std::uint64_t bytes = 0;
    for (const Read& read : group.reads) {
      if (is_segmented(read.tensor) || is_replicated(schedule_, read.tensor)) continue;
      const std::uint64_t own = share_bytes(schedule_, read.tensor, group.reader, columns_);
      bytes +=
          whole_load_[geometries_.of_tensor[read.tensor]] - core::align_up(own, arena_alignment);
    }
    require_pack_bytes(bytes, group.reader);
  }

  void require_pack_bytes(std::uint64_t bytes, std::uint32_t reader) const {
    require(bytes <= schedule_.ranks[reader].pack_bytes, "a run ends after the pack buffer");
  }

  const Schedule& schedule_;
  const Geometries& geometries_;
  SlabTransfers transfers_;
  ItemProof items_;
  RankColumns columns_;
  std::vector<std::uint64_t> places_;      // by tensor: all 0
  std::vector<std::uint64_t> whole_load_;  // by geometry: aligned runs of a whole tensor, all ranks
  std::vector<SegmentReader> segment_readers_;
  Slab slab_;                 // of one segment
  std::uint64_t bytes_ = 0;   // of it, that the rank keeps, converted
  std::uint64_t prefix_ = 0;  // of the rank's share, before it
  std::vector<PackItem> packed_;
};

}  // namespace

void prove_packing(const Schedule& schedule, const Geometries& geometries) {
  GeometryProof(schedule, geometries).check();
}

}  // namespace safeshuffle::plan
