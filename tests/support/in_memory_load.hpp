// A load in memory: executes a schedule's own items and runs, byte by byte, on invented files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "safeshuffle/error.hpp"

#include "plan/arena.hpp"
#include "plan/schedule.hpp"
#include "plan/transfers.hpp"
#include "plan/waves.hpp"

namespace safeshuffle::testing {

/// Byte `offset` of file `file`; differs between neighbours.
inline std::byte file_byte(std::uint32_t file, std::uint64_t offset) {
  const std::uint64_t mixed = (offset + 1) * 0x9E3779B97F4A7C15U + file * 0xD6E8FEB86659FD93U;
  return static_cast<std::byte>(mixed >> 56);
}

/// All ranks of a load without conversion. Every write is counted, so that `result_is_right` sees
/// bytes written twice or never.
class InMemoryLoad {
 public:
  explicit InMemoryLoad(const plan::Schedule& schedule)
      : schedule_(schedule), arenas_(schedule.world), writes_(schedule.world) {
    for (std::uint32_t rank = 0; rank < schedule.world; ++rank) {
      planners_.emplace_back(schedule, rank);
      offsets_.push_back(plan::arena_offsets(schedule, rank));
      arenas_[rank].resize(schedule.ranks[rank].arena_bytes);
      writes_[rank].resize(schedule.ranks[rank].arena_bytes);
    }
    for (std::uint32_t wave = 0; wave < schedule.waves; ++wave) run_wave(wave);
  }

  /// Whether every rank holds exactly what the placements say, each byte written once.
  bool result_is_right() const {
    for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) {
      for (std::uint32_t tensor = 0; tensor < schedule_.placements.size(); ++tensor) {
        if (!shard_is_right(rank, tensor)) return false;
      }
    }
    return true;
  }

 private:
  struct RankWave {
    std::vector<std::byte> slab;
    std::vector<std::byte> send;
    plan::Outgoing outgoing;
    plan::Incoming incoming;
  };

  void run_wave(std::uint32_t wave) {
    std::vector<RankWave> ranks(schedule_.world);
    for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) {
      ranks[rank].outgoing = planners_[rank].outgoing(wave);
      ranks[rank].incoming = planners_[rank].incoming(wave);
      plan::Slab slab;
      plan::slab_at(schedule_, wave, rank, slab);
      read(slab, rank, ranks[rank]);
      pack(rank, ranks[rank]);
    }
    for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) deliver(rank, ranks);
  }

  void read(const plan::Slab& slab, std::uint32_t rank, RankWave& state) const {
    state.slab.resize(schedule_.ranks[rank].slab_bytes);
    state.send.resize(schedule_.ranks[rank].pack_bytes);
    for (const plan::FileRange& range : slab.file_ranges) {
      for (std::uint64_t i = 0; i < range.bytes; ++i) {
        state.slab.at(range.slab_offset + i) = file_byte(range.file, range.file_offset + i);
      }
    }
  }

  void pack(std::uint32_t rank, RankWave& state) {
    for (const PackItem& item : state.outgoing.items) {
      for (std::uint64_t row = 0; row < item.rows; ++row) {
        for (std::uint64_t i = 0; i < item.row_bytes; ++i) {
          const std::byte value = state.slab.at(item.source + row * item.source_stride + i);
          const std::uint64_t to = item.destination + row * item.destination_stride + i;
          if (item.target == PackTarget::pack_buffer) {
            state.send.at(to) = value;
          } else {
            write(rank, to, value);
          }
        }
      }
    }
  }

  void deliver(std::uint32_t rank, const std::vector<RankWave>& ranks) {
    for (const plan::Run& receive : ranks[rank].incoming.receives) {
      const RankWave& sender = ranks[receive.peer];
      const auto send = std::find_if(sender.outgoing.sends.begin(), sender.outgoing.sends.end(),
                                     [&](const plan::Run& run) { return run.peer == rank; });
      const auto& memory = send->memory == plan::RunMemory::pack_buffer ? sender.send : sender.slab;
      for (std::uint64_t i = 0; i < receive.bytes; ++i) {
        write(rank, receive.offset + i, memory.at(send->offset + i));
      }
    }
    for (const plan::Run& broadcast : ranks[rank].incoming.broadcasts) {
      if (broadcast.peer == rank) continue;
      const auto& theirs = ranks[broadcast.peer].incoming.broadcasts;
      const auto source = std::find_if(theirs.begin(), theirs.end(), [&](const plan::Run& run) {
        return run.peer == broadcast.peer;
      });
      for (std::uint64_t i = 0; i < broadcast.bytes; ++i) {
        write(rank, broadcast.offset + i, arenas_[broadcast.peer].at(source->offset + i));
      }
    }
  }

  void write(std::uint32_t rank, std::uint64_t offset, std::byte value) {
    arenas_[rank].at(offset) = value;
    writes_[rank].at(offset) += 1;
  }

  bool shard_is_right(std::uint32_t rank, std::uint32_t index) const {
    std::uint64_t at = offsets_[rank][index];
    for (const std::uint64_t offset : kept_file_offsets(rank, index)) {
      const auto file = schedule_.catalog.tensors()[index].file;
      if (writes_[rank].at(at) != 1 || arenas_[rank].at(at) != file_byte(file, offset)) {
        return false;
      }
      ++at;
    }
    return true;
  }

  // By definition: the tensor's indices along the cut axis that are in the rank's intervals.
  std::vector<std::uint64_t> kept_file_offsets(std::uint32_t rank, std::uint32_t index) const {
    const TensorInfo& tensor = schedule_.catalog.tensors()[index];
    const Placement& placement = schedule_.placements[index];
    std::vector<std::uint64_t> offsets;
    if (!holds(placement, rank) || tensor.bytes == 0) return offsets;
    if (placement.kind != Placement::Kind::sharded) {
      for (std::uint64_t i = 0; i < tensor.bytes; ++i) offsets.push_back(tensor.file_offset + i);
      return offsets;
    }
    const std::uint64_t extent = tensor.shape[placement.split.axis];
    std::uint64_t inner_bytes = bits(tensor.dtype) / 8;
    for (std::size_t i = placement.split.axis + 1; i < tensor.shape.size(); ++i) {
      inner_bytes *= tensor.shape[i];
    }
    std::vector<Interval> intervals;
    append_intervals(placement.split, extent, rank, schedule_.world, intervals);
    for (std::uint64_t i = 0; i < tensor.bytes; ++i) {
      const std::uint64_t position = i / inner_bytes % extent;
      const bool kept = std::any_of(intervals.begin(), intervals.end(), [&](const Interval& k) {
        return position >= k.begin && position - k.begin < k.length;
      });
      if (kept) offsets.push_back(tensor.file_offset + i);
    }
    return offsets;
  }

  const plan::Schedule& schedule_;
  std::vector<plan::TransferPlanner> planners_;      // [rank]
  std::vector<std::vector<std::uint64_t>> offsets_;  // [rank][tensor]
  std::vector<std::vector<std::byte>> arenas_;
  std::vector<std::vector<int>> writes_;
};

}  // namespace safeshuffle::testing
