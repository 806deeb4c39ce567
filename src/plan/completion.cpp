#include "plan/completion.hpp"

#include <algorithm>

#include "plan/waves.hpp"

namespace safeshuffle::plan {
namespace {

// By depth in the model.
std::vector<std::uint32_t> depths_complete_after(const Schedule& schedule,
                                                 const std::vector<std::uint32_t>& targets) {
  std::vector<std::uint32_t> depths(schedule.layers.numbers.size() + 2);
  for (const Use& use : schedule.uses) {
    std::uint32_t& wave = depths[schedule.layers.depth[use.tensor]];
    wave = std::max(wave, targets[use.target]);
  }
  if (schedule.order == Order::layer) {
    depths[first_layer_depth] = std::max(depths[0], depths[first_layer_depth]);
  }
  return depths;
}

template <class Complete>
void sort_by_wave(std::vector<Complete>& list) {
  std::ranges::stable_sort(list, {}, &Complete::wave);
}

template <class Complete>
std::span<const Complete> after(const std::vector<Complete>& list, std::uint32_t wave) {
  // Not equal_range of std::ranges, which Clang 14 does not compile with GCC's library.
  return {std::ranges::lower_bound(list, wave, {}, &Complete::wave),
          std::ranges::upper_bound(list, wave, {}, &Complete::wave)};
}

}  // namespace

Completion::Completion(const Schedule& schedule, std::uint32_t rank) {
  const std::vector<std::uint32_t> waves = complete_after(schedule);
  const std::uint32_t shard = shard_index(schedule, rank);
  for (std::uint32_t i = 0; i < waves.size(); ++i) {
    if (holds(schedule.targets[i].placement, shard)) targets_.push_back({waves[i], i});
  }
  const std::vector<std::uint32_t> depths = depths_complete_after(schedule, waves);
  for (std::size_t i = 0; i < schedule.layers.numbers.size(); ++i) {
    layers_.push_back({depths[i + 1], schedule.layers.numbers[i]});
  }
  sort_by_wave(targets_);
  sort_by_wave(layers_);
}

std::span<const CompleteTarget> Completion::targets(std::uint32_t wave) const {
  return after(targets_, wave);
}

std::span<const CompleteLayer> Completion::layers(std::uint32_t wave) const {
  return after(layers_, wave);
}

}  // namespace safeshuffle::plan
