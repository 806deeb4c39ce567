// libFuzzer: any bytes as a rule file and, behind a zero byte, as a config.json. They may be
// refused with a ConfigError, tensors also with a PlanError, and nothing else; rules that are
// accepted must survive being written as a file, and plans of what they compose must be provable.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/loader.hpp"
#include "safeshuffle/placement.hpp"
#include "safeshuffle/plan.hpp"

namespace {

using namespace safeshuffle;

void require(bool condition) {
  if (!condition) std::abort();
}

Catalog make_catalog() {
  constexpr std::array names{"embed.weight",
                             "layers.0.mlp.up.weight",
                             "layers.1.mlp.up.bias",
                             "model.layers.0.mlp.experts.w",
                             "layers.1.mlp.experts.3.w",
                             "norm.weight",
                             "lm_head.weight"};
  std::vector<TensorInfo> tensors;
  for (const char* name : names) {
    tensors.push_back({.name = name,
                       .dtype = DType::U8,
                       .shape = {4, 6},
                       .file_offset = tensors.size() * 24,
                       .bytes = 24});
  }
  std::vector<FileInfo> files(1);
  files[0].size = tensors.size() * 24;
  return {std::move(files), std::move(tensors)};
}

const Catalog& catalog() {
  static const Catalog made = make_catalog();
  return made;
}

/// None if the call throws what it may.
template <class Call>
auto attempt(const Call& call) -> std::optional<decltype(call())> {
  try {
    return call();
  } catch (const ConfigError&) {
  } catch (const PlanError&) {
  }
  return std::nullopt;
}

using Placements = std::vector<std::optional<Placement>>;

Placements place(const TpPlan& rules, std::uint32_t world) {
  Placements placements;
  for (const TensorInfo& tensor : catalog().tensors()) {
    placements.push_back(attempt([&] { return rules.place(tensor, world); }));
    if (!placements.back()) continue;
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      const Shape shape = shard_shape(tensor.shape, *placements.back(), rank, world);
      require(shape.size() == tensor.shape.size());
      require(shape[0] <= tensor.shape[0] && shape[1] <= tensor.shape[1]);
    }
  }
  return placements;
}

using Stage = std::optional<std::vector<bool>>;

/// A tensor that no stage has, or more than two, is a defect.
std::vector<Stage> stages_of(const TpPlan& rules, std::uint32_t count) {
  std::vector<Stage> stages;
  std::vector<unsigned> holders(catalog().tensors().size());
  for (std::uint32_t index = 0; index < count; ++index) {
    stages.push_back(attempt([&] { return rules.in_stage(catalog(), {index, count}); }));
    require(stages.back().has_value() == stages.front().has_value());
    for (std::size_t i = 0; stages.back() && i < holders.size(); ++i) {
      holders[i] += (*stages.back())[i] ? 1 : 0;
    }
  }
  for (const unsigned held : holders) require(!stages.front() || held == 1 || held == 2);
  return stages;
}

/// What is loaded of the catalog, composed and placed; a plan of it that is made must be sound.
void compose(const TpPlan& rules, std::uint32_t world) {
  const auto targets = attempt([&] {
    return select_targets({catalog(), {}, nullptr}, rules, {}, world);
  });
  if (!targets) return;
  if (const auto plan = attempt([&] { return make_plan(catalog(), *targets, world); })) {
    plan->prove();
  }
}

void check_same(const TpPlan& rules, const TpPlan& again) {
  for (const std::uint32_t world : {1U, 2U, 3U}) {
    require(place(rules, world) == place(again, world));
    require(stages_of(rules, world) == stages_of(again, world));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(text.find('\0'), size);
  const std::string_view config = text.substr(std::min(end + 1, size));
  const auto rules =
      attempt([&] { return TpPlan::from_json(text.substr(0, end), config, "fuzzed"); });
  if (!rules) return 0;
  check_same(*rules, TpPlan::from_json(rules->to_json(), config, "again"));
  for (const std::uint32_t world : {1U, 2U, 3U}) compose(*rules, world);
  if (const auto dealt = attempt([&] { return rules->deal_experts(); })) {
    for (const std::uint32_t world : {1U, 2U, 3U}) place(*dealt, world);
  }
  return 0;
}
