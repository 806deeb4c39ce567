#include "simulation/traffic.hpp"

#include <utility>

#include "plan/waves.hpp"

namespace safeshuffle::simulation {

using plan::Segment;

TrafficCounter::TrafficCounter(const plan::Schedule& schedule, std::uint32_t ranks_per_node)
    : schedule_(schedule),
      ranks_per_node_(ranks_per_node),
      geometries_(plan::find_geometries(schedule)),
      whole_(geometries_.example.size()) {}

std::vector<Traffic> TrafficCounter::of_wave(std::uint32_t wave) {
  traffic_.assign(schedule_.world, {});
  const bool exchanged = plan::is_exchanged(schedule_, wave);
  for (std::uint32_t reader = 0; reader < schedule_.world; ++reader) {
    plan::slab_at(schedule_, wave, reader, slab_);
    add_slab(reader, exchanged);
  }
  return std::exchange(traffic_, {});
}

void TrafficCounter::add_slab(std::uint32_t reader, bool exchanged) {
  for (const plan::FileRange& range : slab_.file_ranges) {
    traffic_[reader].read += static_cast<double>(range.bytes);
  }
  for (const Segment& segment : slab_.segments) {
    if (!exchanged) {
      add_own(segment, reader);
    } else if (plan::is_replicated(schedule_, segment.tensor)) {
      add_broadcast(segment, reader);
    } else {
      add_shared(segment, reader);
    }
  }
}

// A slice.
void TrafficCounter::add_own(const Segment& segment, std::uint32_t reader) {
  columns_.assign(schedule_, segment.tensor, reader);
  const Kept kept = kept_by(plan::shard_index(schedule_, reader), segment, columns_);
  const double bytes = converted(segment, kept.stored);
  pack(segment, reader, kept);
  traffic_[reader].own += bytes;
  land(segment.tensor, reader, bytes);
}

void TrafficCounter::add_broadcast(const Segment& segment, std::uint32_t reader) {
  columns_.assign(schedule_, segment.tensor, reader);
  const Kept kept = kept_by(plan::shard_index(schedule_, reader), segment, columns_);
  const double bytes = converted(segment, kept.stored);
  pack(segment, reader, kept);
  traffic_[reader].own += bytes;
  traffic_[reader].sent += bytes * (schedule_.world - 1);
  // Passed on from each rank to the next, and from the last to the first.
  for (std::uint32_t i = 0; i + 1 < schedule_.world; ++i) {
    const std::uint32_t from = (reader + i) % schedule_.world;
    const std::uint32_t to = (from + 1) % schedule_.world;
    add_message(from, to, bytes, &Traffic::exchange);
    traffic_[to].received += bytes;
  }
  for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) land(segment.tensor, rank, bytes);
}

void TrafficCounter::add_shared(const Segment& segment, std::uint32_t reader) {
  for (const Kept& kept : kept_of(segment)) add_run(segment, reader, kept);
}

// To the rank of the reader's replica, and from there to its twins.
void TrafficCounter::add_run(const Segment& segment, std::uint32_t reader, const Kept& kept) {
  const double bytes = converted(segment, kept.stored);
  const std::uint32_t replica = plan::replica_of(schedule_, reader);
  const std::uint32_t rank = plan::twin_of(schedule_, kept.shard, replica);
  pack(segment, reader, kept);
  land(segment.tensor, rank, bytes);
  if (rank == reader) {
    traffic_[rank].own += bytes;
  } else {
    add_message(reader, rank, bytes, &Traffic::exchange);
    traffic_[reader].sent += bytes;
    traffic_[rank].received += bytes;
  }
  for (std::uint32_t other = 0; other < schedule_.replicas; ++other) {
    if (other == replica) continue;
    const std::uint32_t twin = plan::twin_of(schedule_, rank, other);
    add_message(rank, twin, bytes, &Traffic::relay);
    traffic_[rank].sent += bytes;
    traffic_[twin].received += bytes;
    land(segment.tensor, twin, bytes);
  }
}

void TrafficCounter::add_message(std::uint32_t from, std::uint32_t to, double bytes,
                                 Messages Traffic::*messages) {
  Messages& sender = traffic_[from].*messages;
  Messages& receiver = traffic_[to].*messages;
  sender.sent += bytes;
  receiver.received += bytes;
  if (!is_far(from, to)) return;
  sender.sent_far += bytes;
  receiver.received_far += bytes;
}

void TrafficCounter::pack(const Segment& segment, std::uint32_t reader, const Kept& kept) {
  const auto bytes = static_cast<double>(kept.stored);
  traffic_[reader].packed += bytes;
  traffic_[reader].overhead += static_cast<double>(kept.overhead);
  const DType stored_type = schedule_.catalog.tensors()[segment.tensor].dtype;
  if (stored_type != schedule_.dtypes[segment.tensor]) traffic_[reader].converted += bytes;
}

void TrafficCounter::land(std::uint32_t tensor, std::uint32_t rank, double bytes) {
  if (schedule_.lands[tensor]) traffic_[rank].landed += bytes;
}

double TrafficCounter::converted(const Segment& segment, std::uint64_t stored) const {
  return static_cast<double>(plan::converted_bytes(schedule_, segment.tensor, stored));
}

TrafficCounter::Kept TrafficCounter::kept_by(std::uint32_t shard, const Segment& segment,
                                             const plan::RankColumns& columns) const {
  const plan::Cut& cut = schedule_.cuts[segment.tensor];
  const std::uint64_t stored = share_of(cut, columns, segment.begin, segment.end).bytes;
  return {shard, stored, cached_overhead(cut, columns, stored)};
}

// Whole tensors of one geometry are alike; most are read whole.
const std::vector<TrafficCounter::Kept>& TrafficCounter::kept_of(const Segment& segment) {
  const std::uint32_t tensor = segment.tensor;
  const bool whole = segment.end - segment.begin == schedule_.catalog.tensors()[tensor].bytes;
  std::vector<Kept>& kept = whole ? whole_[geometries_.of_tensor[tensor]] : part_;
  if (whole && !kept.empty()) return kept;
  kept.clear();
  plan::for_each_receiver(schedule_, tensor, columns_,
                          [&](std::uint32_t shard, const plan::RankColumns& columns) {
                            const Kept of_shard = kept_by(shard, segment, columns);
                            if (of_shard.stored != 0) kept.push_back(of_shard);
                          });
  return kept;
}

}  // namespace safeshuffle::simulation
