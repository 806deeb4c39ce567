#include "plan/shard.hpp"

#include <algorithm>
#include <unordered_map>

#include "core/tensor_bytes.hpp"
#include "plan/geometry.hpp"

namespace safeshuffle::plan {
namespace {

// Whether zeros and stored bytes have the same places in both targets, whichever tensors the bytes
// are from.
bool same_places(const Composition* a, const Composition* b) {
  if (a == nullptr || b == nullptr) return a == b;
  const auto same_place = [](const Fill& x, const Fill& y) {
    return x.target_begin == y.target_begin && x.length == y.length &&
           (x.tensor == Fill::zeros) == (y.tensor == Fill::zeros);
  };
  return a->axis == b->axis && std::ranges::equal(a->fills, b->fills, same_place);
}

bool same_shards(const Schedule& schedule, const Target& a, const Target& b) {
  return schedule.dtypes[a.tensor] == schedule.dtypes[b.tensor] && a.placement == b.placement &&
         shape_of(a, schedule.catalog) == shape_of(b, schedule.catalog) &&
         same_places(a.composition.get(), b.composition.get());
}

// Of all that thousands of targets may differ by.
std::size_t shard_hash(const Schedule& schedule, const Target& target) {
  std::uint64_t hash =
      mixed(static_cast<std::uint64_t>(target.placement.kind), target.placement.rank);
  for (const std::uint64_t extent : shape_of(target, schedule.catalog)) hash = mixed(hash, extent);
  if (!target.composition) return hash;
  for (const Fill& fill : target.composition->fills) hash = mixed(hash, fill.length);
  return hash;
}

}  // namespace

void append_shard_intervals(const Schedule& schedule, const Target& target, std::uint32_t axis,
                            std::uint32_t rank, std::vector<Interval>& intervals) {
  const std::uint64_t extent = shape_of(target, schedule.catalog)[axis];
  const Placement& placement = target.placement;
  if (placement.kind == Placement::Kind::sharded && placement.split.axis == axis) {
    append_intervals(placement.split, extent, shard_index(schedule, rank), schedule.replica_size,
                     intervals);
  } else if (extent != 0) {
    intervals.push_back({0, extent});
  }
}

std::uint64_t shard_bytes(const Schedule& schedule, std::uint32_t index, std::uint32_t rank,
                          RankColumns& columns) {
  const Target& target = schedule.targets[index];
  const std::uint32_t shard = shard_index(schedule, rank);
  if (!holds(target.placement, shard)) return 0;
  if (!target.composition) {
    columns.assign(schedule, Use{target.tensor, index, 0}, rank);
    return converted_bytes(schedule, target.tensor,
                           schedule.cuts[target.tensor].rows * columns.row_bytes());
  }
  return core::tensor_bytes(shard_shape(shape_of(target, schedule.catalog), target.placement, shard,
                                        schedule.replica_size),
                            schedule.dtypes[target.tensor]);
}

std::vector<TargetGroup> target_groups(const Schedule& schedule) {
  const auto hash = [&](std::uint32_t target) {
    return shard_hash(schedule, schedule.targets[target]);
  };
  const auto equal = [&](std::uint32_t a, std::uint32_t b) {
    return same_shards(schedule, schedule.targets[a], schedule.targets[b]);
  };
  std::unordered_map<std::uint32_t, std::uint64_t, decltype(hash), decltype(equal)> counts(64, hash,
                                                                                           equal);
  for (const std::uint32_t target : schedule.arena_order) {
    if (!is_target(schedule, schedule.targets[target].tensor)) ++counts[target];
  }
  std::vector<TargetGroup> groups;
  for (const auto& [example, targets] : counts) groups.push_back({example, targets});
  return groups;
}

}  // namespace safeshuffle::plan
