#include "plan/warnings.hpp"

#include <algorithm>

#include "core/defaults.hpp"

namespace safeshuffle::plan {
namespace {

constexpr std::uint64_t efficient_window = std::uint64_t{1} << 20;

void warn_of_small_window(const Schedule& schedule, std::vector<std::string>& warnings) {
  const std::uint64_t practical = smallest_practical_window(schedule);
  if (schedule.window >= practical) return;
  warnings.push_back("a window of " + std::to_string(schedule.window) + " bytes needs " +
                     std::to_string(schedule.waves) +
                     " waves, each with messages between all ranks; use at least " +
                     std::to_string(practical) + " bytes for acceptable speed");
}

void warn_of_full_copies(const Schedule& schedule, std::vector<std::string>& warnings) {
  if (fills_lent_memory(schedule)) return;  // the callers said where what goes
  const PlacementSummary placed = summarize(schedule.catalog, schedule.targets);
  const bool is_distributed = placed.partitioned.tensors != 0 || placed.single.tensors != 0;
  if (schedule.replica_size == 1 || is_distributed || placed.replicated.bytes == 0) return;
  warnings.push_back("no tensor is partitioned: each of the " + std::to_string(schedule.world) +
                     " ranks holds all " + std::to_string(placed.replicated.bytes) +
                     " bytes of the model; placement rules decide what is partitioned (tp_plan, "
                     "--tp-plan)");
}

}  // namespace

std::uint64_t smallest_practical_window(const Schedule& schedule) {
  std::uint64_t largest_tensor = core::smallest_window;
  const auto tensors = schedule.catalog.tensors();
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    if (!is_read(schedule, i)) continue;
    largest_tensor = std::max(largest_tensor, tensors[i].bytes);
  }
  return std::min(efficient_window, largest_tensor);
}

std::vector<std::string> warnings_of(const Schedule& schedule) {
  std::vector<std::string> warnings;
  warn_of_small_window(schedule, warnings);
  warn_of_full_copies(schedule, warnings);
  return warnings;
}

}  // namespace safeshuffle::plan
