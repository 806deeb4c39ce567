#include "plan/shard.hpp"

#include <unordered_map>

#include "core/tensor_bytes.hpp"
#include "plan/mix.hpp"

namespace safeshuffle::plan {
namespace {

class TargetEqual {
 public:
  explicit TargetEqual(const Schedule& schedule) : schedule_(&schedule) {}

  bool operator()(std::uint32_t a, std::uint32_t b) const {
    const Target& first = schedule_->targets[a];
    const Target& second = schedule_->targets[b];
    return schedule_->dtypes[first.tensor] == schedule_->dtypes[second.tensor] &&
           first.placement == second.placement &&
           shape_of(first, schedule_->catalog) == shape_of(second, schedule_->catalog);
  }

 private:
  const Schedule* schedule_;
};

class TargetHash {
 public:
  explicit TargetHash(const Schedule& schedule) : schedule_(&schedule) {}

  std::size_t operator()(std::uint32_t index) const {
    const Target& target = schedule_->targets[index];
    std::uint64_t hash = static_cast<std::uint64_t>(target.placement.kind);
    for (const std::uint64_t extent : shape_of(target, schedule_->catalog)) {
      hash = mixed(hash, extent);
    }
    return hash;
  }

 private:
  const Schedule* schedule_;
};

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
  std::unordered_map<std::uint32_t, std::uint64_t, TargetHash, TargetEqual> counts(
      64, TargetHash(schedule), TargetEqual(schedule));
  for (const std::uint32_t target : schedule.arena_order) {
    if (!is_target(schedule, schedule.targets[target].tensor)) ++counts[target];
  }
  std::vector<TargetGroup> groups;
  for (const auto& [example, targets] : counts) groups.push_back({example, targets});
  return groups;
}

}  // namespace safeshuffle::plan
