#include "plan/arena.hpp"

#include "core/arithmetic.hpp"
#include "plan/shard.hpp"
#include "plan/waves.hpp"

namespace safeshuffle::plan {

std::vector<std::uint32_t> arena_order(const Schedule& schedule) {
  if (fills_lent_memory(schedule)) return {};
  std::vector<bool> placed(schedule.targets.size());
  std::vector<std::uint32_t> order;
  order.reserve(schedule.targets.size());
  const auto place = [&](std::uint32_t target) {
    if (placed[target]) return;
    placed[target] = true;
    order.push_back(target);
  };
  for (const ReadGroup& group : read_groups(schedule)) {
    for (const bool replicated : {false, true}) {
      for (const Read& read : group.reads) {
        if (schedule.lands[read.tensor]) continue;
        if (is_replicated(schedule, read.tensor) != replicated) continue;
        place(uses_of(schedule, read.tensor).front().target);
      }
    }
  }
  for (const Use& use : schedule.uses) {
    if (schedule.lands[use.tensor]) place(use.target);
  }
  return order;
}

std::vector<std::uint64_t> arena_offsets(const Schedule& schedule, std::uint32_t rank) {
  std::vector<std::uint64_t> offsets(schedule.targets.size(), not_held);
  RankColumns columns;
  std::uint64_t end = 0;
  for (const std::uint32_t target : schedule.arena_order) {
    const std::uint64_t bytes = shard_bytes(schedule, target, rank, columns);
    if (bytes == 0) continue;
    offsets[target] = end;
    end = core::align_up(end + bytes, arena_alignment);
  }
  return offsets;
}

std::vector<std::uint64_t> places_of_tensors(const Schedule& schedule,
                                             std::span<const std::uint64_t> offsets) {
  std::vector<std::uint64_t> places(schedule.cuts.size(), not_held);
  for (const Use& use : schedule.uses) {
    if (!schedule.lands[use.tensor]) places[use.tensor] = offsets[use.target];
  }
  return places;
}

}  // namespace safeshuffle::plan
