// The shards of targets: what each rank ends up with.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// Appends what `rank` keeps of the indices along `axis` of a target that it holds: all of them, or
/// what the placement splits off.
void append_shard_intervals(const Schedule& schedule, const Target& target, std::uint32_t axis,
                            std::uint32_t rank, std::vector<Interval>& intervals);

/// Bytes of the shard of `rank`, after conversion; 0 if it does not hold the target. `columns` is
/// scratch memory.
std::uint64_t shard_bytes(const Schedule& schedule, std::uint32_t target, std::uint32_t rank,
                          RankColumns& columns);

/// Targets in the arenas that are placed and composed alike, of whatever tensors: on every rank,
/// their shards have equal sizes, and zeros at the same places, because a fill's place depends only
/// on its extent in the target, not on where it begins in its tensor.
struct TargetGroup {
  std::uint32_t example = 0;
  std::uint64_t targets = 0;
};

/// Of targets whose shards are not simply shares of a stored tensor (see is_target).
std::vector<TargetGroup> target_groups(const Schedule& schedule);

}  // namespace safeshuffle::plan
