#include "plan/arena.hpp"

#include "core/arithmetic.hpp"
#include "plan/cut.hpp"
#include "plan/geometry.hpp"
#include "plan/waves.hpp"

namespace safeshuffle::plan {

std::vector<std::uint32_t> arena_order(const Schedule& schedule) {
  std::vector<bool> placed(schedule.cuts.size());
  std::vector<std::uint32_t> order;
  for (const ReadGroup& group : read_groups(schedule)) {
    for (const bool replicated : {false, true}) {
      for (std::uint32_t i = group.first; i < group.first + group.count; ++i) {
        const std::uint32_t tensor = schedule.reads[group.reader][i].tensor;
        if (placed[tensor] || is_replicated(schedule, tensor) != replicated) continue;
        placed[tensor] = true;
        order.push_back(tensor);
      }
    }
  }
  return order;
}

std::vector<std::uint64_t> arena_offsets(const Schedule& schedule, std::uint32_t rank) {
  std::vector<std::uint64_t> offsets(schedule.cuts.size(), not_held);
  RankColumns columns;
  std::uint64_t end = 0;
  for (const std::uint32_t tensor : schedule.arena_order) {
    const std::uint64_t bytes = shard_bytes(schedule, tensor, rank, columns);
    if (bytes == 0) continue;
    offsets[tensor] = end;
    end = core::align_up(end + bytes, arena_alignment);
  }
  return offsets;
}

}  // namespace safeshuffle::plan
