#include "plan/fill.hpp"

#include <algorithm>

#include "plan/arena.hpp"
#include "plan/assignment.hpp"
#include "plan/summary.hpp"
#include "plan/waves.hpp"

namespace safeshuffle::plan {

void fill(Schedule& schedule, const Geometries& geometries, std::uint64_t window) {
  schedule.window = window;
  schedule.exchanged_waves = 0;
  schedule.reads = {};  // first, so that the memory is free
  schedule.slices = {};
  schedule.arena_order = {};
  schedule.reads = assign(schedule);
  for (auto& reads : schedule.reads) {
    schedule.exchanged_waves = std::max(schedule.exchanged_waves, number_waves(schedule, 0, reads));
  }
  schedule.slices = assign_slices(schedule, geometries);
  schedule.waves = number_waves(schedule, schedule.exchanged_waves, schedule.slices);
  schedule.arena_order = arena_order(schedule);
  summarize(schedule, geometries);
}

}  // namespace safeshuffle::plan
