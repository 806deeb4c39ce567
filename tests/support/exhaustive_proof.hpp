// Proves the same as plan::prove by examining every slab, pack item and message of every rank in
// every wave: for small schedules only, without compositions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/arithmetic.hpp"
#include "core/page.hpp"
#include "plan/arena.hpp"
#include "plan/geometry.hpp"
#include "plan/proof_item.hpp"
#include "plan/schedule.hpp"
#include "plan/segments.hpp"
#include "plan/transfers.hpp"
#include "plan/waves.hpp"

namespace safeshuffle::testing {

/// Throws PlanError if the schedule is not correct. Its tables must have the right sizes, and its
/// cuts and types must be correct.
class ExhaustiveProof {
 public:
  explicit ExhaustiveProof(const plan::Schedule& schedule)
      : schedule_(schedule),
        tensors_(schedule.catalog.tensors()),
        items_(schedule),
        file_ranges_(schedule.catalog.files().size()),
        read_(tensors_.size()),
        written_(schedule.world, std::vector<std::uint64_t>(tensors_.size())),
        runs_(schedule.world) {}

  void check() {
    check_reads();
    for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) {
      places_.push_back(plan::places_of_tensors(schedule_, plan::arena_offsets(schedule_, rank)));
      planners_.emplace_back(schedule_, rank);
    }
    for (std::uint32_t wave = 0; wave < schedule_.waves; ++wave) check_wave(wave);
    for (const auto& ranges : file_ranges_) require(plan::disjoint(ranges), "read twice");
    for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
      require(read_[i] == (plan::is_read(schedule_, i) ? tensors_[i].bytes : 0), "not all is read");
    }
    for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) {
      check_held(rank);
      require(plan::disjoint(runs_[rank]), "two runs overlap in an arena");
    }
  }

 private:
  static void require(bool condition, const char* cause) { plan::require(condition, cause); }

  // Otherwise a slab cannot even be computed.
  void check_reads() const {
    for (const std::uint32_t tensor : schedule_.arena_order) {
      require(tensor < tensors_.size(), "an unknown tensor is in the arena");
    }
    for (const auto& reads : schedule_.reads) {
      for (const plan::Read& read : reads) {
        require(read.tensor < tensors_.size() && tensors_[read.tensor].bytes != 0, "unknown");
        const plan::Segments segments(schedule_.cuts[read.tensor], schedule_.window);
        require(core::in_bounds(read.first_segment, read.segments, segments.count()),
                "unknown segment");
      }
    }
  }

  void check_wave(std::uint32_t wave) {
    std::vector<plan::Incoming> incoming;
    std::vector<plan::Outgoing> outgoing;
    for (plan::TransferPlanner& planner : planners_) {
      incoming.push_back(planner.incoming(wave));
      outgoing.push_back(planner.outgoing(wave));
    }
    for (std::uint32_t reader = 0; reader < schedule_.world; ++reader) {
      plan::slab_at(schedule_, wave, reader, slab_);
      check_slab(schedule_.ranks[reader].slab_bytes);
      check_own(outgoing[reader], incoming, reader);
      check_sends(outgoing[reader], incoming, reader);
    }
    check_messages(outgoing, incoming);
  }

  void check_slab(std::uint64_t capacity) {
    std::uint64_t free_from = 0;
    auto segment = slab_.segments.begin();
    for (const plan::FileRange& range : slab_.file_ranges) {
      require(core::in_bounds(range.file_offset, range.bytes,
                              schedule_.catalog.files()[range.file].size),
              "a file range ends after the file");
      require(range.slab_offset >= free_from &&
                  core::in_bounds(range.slab_offset, range.bytes, capacity) &&
                  range.slab_offset % core::page_bytes == range.file_offset % core::page_bytes,
              "a file range has no place of its own");
      free_from = range.slab_offset + range.bytes;
      std::uint64_t covered = 0;
      for (; segment != slab_.segments.end() && covered < range.bytes; ++segment) {
        const TensorInfo& tensor = tensors_[segment->tensor];
        require(tensor.file == range.file &&
                    tensor.file_offset + segment->begin == range.file_offset + covered &&
                    segment->slab_offset == range.slab_offset + covered,
                "a segment does not lie where the file has it");
        covered += segment->end - segment->begin;
        read_[segment->tensor] += segment->end - segment->begin;
      }
      require(covered == range.bytes, "a file range does not hold its segments");
      file_ranges_[range.file].push_back({range.file_offset, range.file_offset + range.bytes});
    }
    require(segment == slab_.segments.end(), "a segment is not read");
  }

  void check_own(const plan::Outgoing& outgoing, const std::vector<plan::Incoming>& incoming,
                 std::uint32_t reader) {
    items_.start();
    for (const PackItem& item : outgoing.items) {
      if (item.target != PackTarget::arena) continue;
      check_written(item, reader, item.destination);
    }
    for (const PackItem& item : outgoing.items) {
      const plan::Segment& segment = plan::segment_of(slab_, item.source);
      if (!plan::is_replicated(schedule_, segment.tensor)) continue;
      for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) {
        if (rank != reader) check_broadcast(item, incoming, reader, rank);
      }
    }
  }

  // Data at the same place of the broadcast run must be at the right place on every rank.
  void check_broadcast(const PackItem& item, const std::vector<plan::Incoming>& incoming,
                       std::uint32_t root, std::uint32_t rank) {
    const plan::Run& mine = at(incoming[root].broadcasts, root);
    const plan::Run& theirs = at(incoming[rank].broadcasts, root);
    const std::uint64_t offset = item.destination - mine.offset;
    require(item.destination >= mine.offset &&
                core::in_bounds(offset, item.rows * destination_row_bytes(item), mine.bytes),
            "a replicated tensor is outside the broadcast");
    items_.start();
    check_written(item, rank, theirs.offset + offset);
  }

  void check_written(const PackItem& item, std::uint32_t rank, std::uint64_t arena_offset) {
    const plan::Segment& segment = plan::segment_of(slab_, item.source);
    require(places_[rank][segment.tensor] != plan::not_held, "a tensor has no place");
    written_[rank][segment.tensor] +=
        items_.check(segment, item, {rank, arena_offset, places_[rank][segment.tensor]});
  }

  void check_sends(const plan::Outgoing& outgoing, const std::vector<plan::Incoming>& incoming,
                   std::uint32_t reader) {
    std::uint64_t free_from = 0;
    auto item = std::find_if(outgoing.items.begin(), outgoing.items.end(), is_for_sending);
    for (const plan::Run& send : outgoing.sends) {
      std::vector<PackItem> items;
      if (send.memory == plan::RunMemory::pack_buffer) {
        require(send.offset >= free_from, "two runs overlap in the pack buffer");
        free_from = send.offset + send.bytes;
        require(free_from <= schedule_.ranks[reader].pack_bytes, "after the pack buffer");
        for (; item != outgoing.items.end() && item->destination < free_from; ++item) {
          items.push_back(*item);
        }
      }
      check_send(send, items, at(incoming[send.peer].receives, reader));
    }
    require(item == outgoing.items.end(), "a pack item writes outside all runs");
  }

  static bool is_for_sending(const PackItem& item) {
    return item.target == PackTarget::pack_buffer;
  }

  void check_send(const plan::Run& send, const std::vector<PackItem>& items,
                  const plan::Run& receive) {
    require(send.bytes == receive.bytes, "a send and its receive differ in size");
    items_.start();
    if (send.memory == plan::RunMemory::slab) {
      const plan::Segment& segment = plan::segment_of(slab_, send.offset);
      check_written(plan::block_item(schedule_, segment, send), send.peer, receive.offset);
    }
    for (const PackItem& item : items) {
      const std::uint64_t span =
          (item.rows - 1) * item.destination_stride + destination_row_bytes(item);
      require(item.destination >= send.offset &&
                  core::in_bounds(item.destination - send.offset, span, send.bytes),
              "a pack item writes past its run");
      check_written(item, send.peer, receive.offset + (item.destination - send.offset));
    }
  }

  void check_messages(const std::vector<plan::Outgoing>& outgoing,
                      const std::vector<plan::Incoming>& incoming) {
    std::size_t sends = 0;
    std::size_t receives = 0;
    for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) {
      sends += outgoing[rank].sends.size();
      receives += incoming[rank].receives.size();
      const std::vector<plan::Run>& broadcasts = incoming[rank].broadcasts;
      require(std::equal(broadcasts.begin(), broadcasts.end(), incoming[0].broadcasts.begin(),
                         incoming[0].broadcasts.end(),
                         [](const plan::Run& a, const plan::Run& b) {
                           return a.peer == b.peer && a.bytes == b.bytes;
                         }),
              "ranks differ in their broadcasts");
      for (const plan::Run& run : incoming[rank].receives) note_run(run, rank);
      for (const plan::Run& run : broadcasts) note_run(run, rank);
    }
    require(sends == receives, "a receive has no matching send");
  }

  void note_run(const plan::Run& run, std::uint32_t rank) {
    require(core::in_bounds(run.offset, run.bytes, schedule_.ranks[rank].arena_bytes),
            "a run ends after the arena");
    runs_[rank].push_back({run.offset, run.offset + run.bytes});
  }

  // The run of `peer`, which must exist.
  static const plan::Run& at(const std::vector<plan::Run>& runs, std::uint32_t peer) {
    const auto found = std::find_if(runs.begin(), runs.end(),
                                    [&](const plan::Run& run) { return run.peer == peer; });
    require(found != runs.end(), "a message has no other side");
    return *found;
  }

  void check_held(std::uint32_t rank) {
    std::vector<plan::Range> ranges;
    plan::RankColumns columns;
    for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
      const std::uint64_t bytes = plan::share_bytes(schedule_, i, rank, columns);
      require(written_[rank][i] == bytes, "not all is written");
      if (bytes == 0) continue;
      const std::uint64_t offset = places_[rank][i];
      require(offset % plan::arena_alignment == 0 &&
                  core::in_bounds(offset, bytes, schedule_.ranks[rank].arena_bytes),
              "a tensor is misaligned or ends after the arena");
      ranges.push_back({offset, offset + bytes});
    }
    require(plan::disjoint(ranges), "two tensors overlap in an arena");
  }

  const plan::Schedule& schedule_;
  std::span<const TensorInfo> tensors_;
  plan::ItemProof items_;
  plan::Slab slab_;
  std::vector<plan::TransferPlanner> planners_;        // [rank]
  std::vector<std::vector<std::uint64_t>> places_;     // [rank][tensor]
  std::vector<std::vector<plan::Range>> file_ranges_;  // [file]
  std::vector<std::uint64_t> read_;                    // [tensor], bytes
  std::vector<std::vector<std::uint64_t>> written_;    // [rank][tensor], bytes
  std::vector<std::vector<plan::Range>> runs_;         // [rank], arena ranges of messages
};

}  // namespace safeshuffle::testing
