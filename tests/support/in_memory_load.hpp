// A load in memory: executes a schedule's own items and runs, byte by byte, on invented files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"
#include "device/convert.hpp"
#include "plan/arena.hpp"
#include "plan/in_place.hpp"
#include "plan/lent_memory.hpp"
#include "plan/schedule.hpp"
#include "plan/segments.hpp"
#include "plan/transfers.hpp"
#include "plan/waves.hpp"
#include "support/naive_target.hpp"

namespace safeshuffle::testing {

/// Byte `offset` of file `file`; differs between neighbours.
inline std::byte file_byte(std::uint32_t file, std::uint64_t offset) {
  const std::uint64_t mixed = (offset + 1) * 0x9E3779B97F4A7C15U + file * 0xD6E8FEB86659FD93U;
  return static_cast<std::byte>(mixed >> 56);
}

/// Where the last byte of lent memory ends.
inline std::uint64_t end_of(const plan::LentMemory& lent) {
  std::uint64_t end = 0;
  for (const plan::StridedCopy& copy : lent.copies) {
    end = std::max(end, copy.destination + plan::span_of(plan::destination_of(copy)));
  }
  for (const plan::Zeros& zeros : lent.zeros) {
    end = std::max(end, zeros.offset + (zeros.rows - 1) * zeros.stride + zeros.row_bytes);
  }
  return end;
}

/// All ranks of a load; arenas have the types that are stored. Every read and write is counted, so
/// that `result_is_right` sees bytes read or written twice or never. What `rule` allows is read in
/// place. `lent`: by rank, if this is what is filled instead of arenas; it must outlive the load.
/// Of a damaged schedule, the constructor and `result_is_right` may throw PlanError or
/// std::out_of_range.
class InMemoryLoad {
 public:
  explicit InMemoryLoad(const plan::Schedule& schedule,
                        const plan::InPlaceRule& rule = {.smallest = ~std::uint64_t{0}},
                        const std::vector<plan::LentMemory>& lent = {})
      : schedule_(schedule), rule_(rule), arenas_(schedule.world), writes_(schedule.world) {
    check_reads();
    for (const FileInfo& file : schedule.catalog.files()) reads_.emplace_back(file.size);
    for (std::uint32_t rank = 0; rank < schedule.world; ++rank) {
      planners_.emplace_back(schedule, rank, lent.empty() ? nullptr : &lent[rank]);
      offsets_.push_back(plan::arena_offsets(schedule, rank));
      arenas_[rank].resize(lent.empty() ? schedule.ranks[rank].arena_bytes : end_of(lent[rank]));
      writes_[rank].resize(arenas_[rank].size());
    }
    for (std::uint32_t rank = 0; rank < schedule.world; ++rank) fill_zeros(rank);
    for (std::uint32_t wave = 0; wave < schedule.waves; ++wave) run_wave(wave);
  }

  /// Whether each needed byte was read once, unless several ranks read slices of its tensor, and
  /// every rank holds exactly what the targets say, each byte written once.
  bool result_is_right() const {
    if (!reads_are_right()) return false;
    for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) {
      for (std::uint32_t target = 0; target < schedule_.targets.size(); ++target) {
        if (!shard_is_right(rank, target)) return false;
      }
    }
    return true;
  }

  /// The first of these only.
  bool reads_are_right() const {
    for (std::uint32_t i = 0; i < schedule_.catalog.tensors().size(); ++i) {
      if (!schedule_.sliced[i] && !is_read_once(i)) return false;
    }
    return true;
  }

  /// The bytes of a rank's arena, or lent memory.
  const std::vector<std::byte>& arena(std::uint32_t rank) const { return arenas_[rank]; }

  /// How often each of them was written.
  const std::vector<int>& writes(std::uint32_t rank) const { return writes_[rank]; }

  std::vector<std::byte> stored(std::uint32_t index) const {
    const TensorInfo& tensor = schedule_.catalog.tensors()[index];
    std::vector<std::byte> bytes(tensor.bytes);
    for (std::uint64_t i = 0; i < tensor.bytes; ++i) {
      bytes[i] = file_byte(tensor.file, tensor.file_offset + i);
    }
    return bytes;
  }

 private:
  // Otherwise a slab cannot even be computed.
  void check_reads() const {
    const auto tensors = schedule_.catalog.tensors();
    for (const std::uint32_t target : schedule_.arena_order) {
      if (target >= schedule_.targets.size()) throw PlanError("an unknown target is in the arena");
    }
    for (const auto& reads : schedule_.reads) {
      for (const plan::Read& read : reads) {
        const bool exists = read.tensor < tensors.size() && tensors[read.tensor].bytes != 0;
        if (!exists) throw PlanError("an unknown tensor is read");
        const plan::Segments segments(schedule_.cuts[read.tensor], schedule_.window);
        if (core::in_bounds(read.first_segment, read.segments, segments.count())) continue;
        throw PlanError("an unknown segment is read");
      }
    }
  }

  struct RankWave {
    std::vector<std::byte> slab;
    std::vector<std::byte> send;  ///< and behind it what lands
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
    check_messages(ranks);
    for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) deliver(rank, ranks);
    for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) relay(rank, ranks);
    for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) unpack(rank, ranks[rank]);
  }

  static void check_messages(const std::vector<RankWave>& ranks) {
    std::size_t sends = 0;
    std::size_t receives = 0;
    for (const RankWave& rank : ranks) {
      sends += rank.outgoing.sends.size();
      receives += rank.incoming.receives.size();
    }
    if (sends != receives) throw PlanError("a send has no matching receive");
  }

  void fill_zeros(std::uint32_t rank) {
    for (const plan::Zeros& zeros : planners_[rank].zeros()) {
      for (std::uint64_t row = 0; row < zeros.rows; ++row) {
        for (std::uint64_t i = 0; i < zeros.row_bytes; ++i) {
          write(rank, zeros.offset + row * zeros.stride + i, std::byte{0});
        }
      }
    }
  }

  void read(const plan::Slab& slab, std::uint32_t rank, RankWave& state) {
    state.slab.resize(schedule_.ranks[rank].slab_bytes);
    state.send.resize(landing(rank) + schedule_.ranks[rank].landing_bytes);
    const auto in_place = plan::take_in_place(state.outgoing, rule_);
    for (const auto& [range, in_arena] : plan::place_ranges(slab.file_ranges, in_place)) {
      for (std::uint64_t i = 0; i < range.bytes; ++i) {
        const std::byte value = file_byte(range.file, range.file_offset + i);
        reads_[range.file].at(range.file_offset + i) += 1;
        if (in_arena) {
          write(rank, range.slab_offset + i, value);
        } else {
          state.slab.at(range.slab_offset + i) = value;
        }
      }
    }
  }

  void pack(std::uint32_t rank, RankWave& state) {
    for (const PackItem& item : state.outgoing.items) {
      move(item, state.slab, 0, [&](std::uint64_t to, std::byte value) {
        if (item.target == PackTarget::pack_buffer) {
          state.send.at(to) = value;
        } else {
          write(rank, to, value);
        }
      });
    }
  }

  // Calls put(offset, byte) for everything that the item writes.
  template <class Put>
  static void move(const PackItem& item, const std::vector<std::byte>& source,
                   std::uint64_t source_begin, Put put) {
    std::vector<std::byte> from(item.row_bytes);
    std::vector<std::byte> to(destination_row_bytes(item));
    for (std::uint64_t row = 0; row < item.rows; ++row) {
      for (std::uint64_t i = 0; i < from.size(); ++i) {
        from[i] = source.at(source_begin + item.source + row * item.source_stride + i);
      }
      if (item.from == item.to) {
        to = from;
      } else {
        device::scalar_convert(item.from, item.to)(from.data(), to.data(),
                                                   from.size() * 8 / bits(item.from));
      }
      for (std::uint64_t i = 0; i < to.size(); ++i) {
        put(item.destination + row * item.destination_stride + i, to[i]);
      }
    }
  }

  // Where the landing buffer begins behind the pack buffer.
  std::uint64_t landing(std::uint32_t rank) const { return schedule_.ranks[rank].pack_bytes; }

  void deliver(std::uint32_t rank, std::vector<RankWave>& ranks) {
    std::map<std::uint32_t, std::size_t> received;  // by peer
    for (const plan::Run& receive : ranks[rank].incoming.receives) {
      const RankWave& sender = ranks[receive.peer];
      const plan::Run& send = nth(sender.outgoing.sends, rank, received[receive.peer]++, receive);
      const auto& memory = send.memory == plan::RunMemory::pack_buffer ? sender.send : sender.slab;
      for (std::uint64_t i = 0; i < receive.bytes; ++i) {
        put(rank, ranks[rank], receive, i, memory.at(send.offset + i));
      }
    }
    std::map<std::uint32_t, std::size_t> heard;  // by root
    for (const plan::Run& broadcast : ranks[rank].incoming.broadcasts) {
      const std::uint32_t root = broadcast.peer;
      const std::size_t n = heard[root]++;
      if (root == rank) continue;
      copy(root, nth(ranks[root].incoming.broadcasts, root, n, broadcast), rank, broadcast, ranks);
    }
  }

  // Only now, since what is relayed was received in the same wave.
  void relay(std::uint32_t rank, std::vector<RankWave>& ranks) {
    std::map<std::uint32_t, std::size_t> received;  // by peer
    for (const plan::Run& receive : ranks[rank].incoming.relays.receives) {
      const std::uint32_t peer = receive.peer;
      copy(peer, nth(ranks[peer].incoming.relays.sends, rank, received[peer]++, receive), rank,
           receive, ranks);
    }
  }

  // From the arena or landing buffer of one rank to that of another.
  void copy(std::uint32_t from, const plan::Run& source, std::uint32_t to, const plan::Run& run,
            std::vector<RankWave>& ranks) {
    const bool lands = source.memory == plan::RunMemory::landing;
    const auto& memory = lands ? ranks[from].send : arenas_[from];
    const std::uint64_t begin = source.offset + (lands ? landing(from) : 0);
    for (std::uint64_t i = 0; i < run.bytes; ++i) {
      put(to, ranks[to], run, i, memory.at(begin + i));
    }
  }

  // The n-th run of the peer, which must be as large as its other side.
  static const plan::Run& nth(const std::vector<plan::Run>& runs, std::uint32_t peer, std::size_t n,
                              const plan::Run& other) {
    for (const plan::Run& run : runs) {
      if (run.peer == peer && n-- == 0 && run.bytes == other.bytes) return run;
    }
    throw PlanError("a message has no other side of its size");
  }

  void put(std::uint32_t rank, RankWave& state, const plan::Run& run, std::uint64_t at,
           std::byte value) {
    if (run.memory == plan::RunMemory::landing) {
      state.send.at(landing(rank) + run.offset + at) = value;
    } else {
      write(rank, run.offset + at, value);
    }
  }

  void unpack(std::uint32_t rank, const RankWave& state) {
    for (const PackItem& item : state.incoming.unpack) {
      move(item, state.send, landing(rank),
           [&](std::uint64_t to, std::byte value) { write(rank, to, value); });
    }
  }

  void write(std::uint32_t rank, std::uint64_t offset, std::byte value) {
    arenas_[rank].at(offset) = value;
    writes_[rank].at(offset) += 1;
  }

  bool is_read_once(std::uint32_t index) const {
    const TensorInfo& tensor = schedule_.catalog.tensors()[index];
    const int expected = plan::is_read(schedule_, index) ? 1 : 0;
    for (std::uint64_t i = 0; i < tensor.bytes; ++i) {
      if (reads_[tensor.file].at(tensor.file_offset + i) != expected) return false;
    }
    return true;
  }

  bool shard_is_right(std::uint32_t rank, std::uint32_t index) const {
    const Target& target = schedule_.targets[index];
    const std::vector<std::byte> whole = whole_target(
        schedule_.catalog, target, [&](std::uint32_t tensor) { return stored(tensor); });
    std::uint64_t at = offsets_[rank][index];
    for (const std::byte value :
         slice(whole, shape_of(target, schedule_.catalog), schedule_.dtypes[target.tensor],
               target.placement, rank % schedule_.replica_size, schedule_.replica_size)) {
      if (writes_[rank].at(at) != 1 || arenas_[rank].at(at) != value) return false;
      ++at;
    }
    return true;
  }

  const plan::Schedule& schedule_;
  const plan::InPlaceRule rule_;
  std::vector<plan::TransferPlanner> planners_;      // [rank]
  std::vector<std::vector<std::uint64_t>> offsets_;  // [rank][tensor]
  std::vector<std::vector<std::byte>> arenas_;
  std::vector<std::vector<int>> writes_;
  std::vector<std::vector<int>> reads_;  // [file], by byte
};

}  // namespace safeshuffle::testing
