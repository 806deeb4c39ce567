// What each rank moves in a wave.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/geometry.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::simulation {

/// Bytes that pass a rank's link in an exchange, and those of them that come from other nodes or go
/// there. Of a broadcast, every rank receives each byte once and, but for the last, passes it on.
struct Messages {
  double sent = 0;
  double received = 0;
  double sent_far = 0;
  double received_far = 0;
};

/// One rank's part of a wave, in bytes.
struct Traffic {
  double read = 0;
  double packed = 0;     ///< of what was read: for each rank that gets it, and of broadcasts once
  double converted = 0;  ///< of what is packed, what is converted
  double overhead = 0;   ///< of packing it straight from the page cache (plan::cached_overhead)
  double own = 0;        ///< of what is packed, what the rank keeps itself
  double landed = 0;     ///< unpacked after the exchange
  Messages exchange;
  Messages relay;  ///< between replicas

  /// As RankSummary counts: a broadcast once per receiver.
  double sent = 0;
  double received = 0;
};

/// Computes the traffic of waves. Takes time proportional to tensors x ranks for all of them. Holds
/// scratch memory; not thread-safe.
class TrafficCounter {
 public:
  /// `ranks_per_node`: equally many consecutive ranks are on each node.
  TrafficCounter(const plan::Schedule& schedule, std::uint32_t ranks_per_node);

  /// By rank.
  std::vector<Traffic> of_wave(std::uint32_t wave);

 private:
  struct Kept {  // by a rank of a replica
    std::uint32_t shard = 0;
    std::uint64_t stored = 0;
    std::uint64_t overhead = 0;  // see Traffic
  };

  void add_slab(std::uint32_t reader, bool exchanged);
  void add_own(const plan::Segment& segment, std::uint32_t reader);
  void add_shared(const plan::Segment& segment, std::uint32_t reader);
  void add_broadcast(const plan::Segment& segment, std::uint32_t reader);
  void add_run(const plan::Segment& segment, std::uint32_t reader, const Kept& kept);
  void add_message(std::uint32_t from, std::uint32_t to, double bytes, Messages Traffic::*messages);
  void pack(const plan::Segment& segment, std::uint32_t reader, const Kept& kept);
  void land(std::uint32_t tensor, std::uint32_t rank, double bytes);
  double converted(const plan::Segment& segment, std::uint64_t stored) const;
  Kept kept_by(std::uint32_t shard, const plan::Segment& segment,
               const plan::RankColumns& columns) const;
  const std::vector<Kept>& kept_of(const plan::Segment& segment);
  bool is_far(std::uint32_t a, std::uint32_t b) const noexcept {
    return a / ranks_per_node_ != b / ranks_per_node_;
  }

  const plan::Schedule& schedule_;
  const std::uint32_t ranks_per_node_;
  const plan::Geometries geometries_;
  std::vector<std::vector<Kept>> whole_;  // by geometry: of a tensor in one segment
  std::vector<Kept> part_;
  plan::RankColumns columns_;
  plan::Slab slab_;
  std::vector<Traffic> traffic_;
};

}  // namespace safeshuffle::simulation
