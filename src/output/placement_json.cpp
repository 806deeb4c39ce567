#include "output/placement_json.hpp"

#include <nlohmann/json.hpp>

namespace safeshuffle::output {
namespace {

nlohmann::ordered_json count_json(const TargetCount& count) {
  return {{"tensors", count.tensors}, {"bytes", count.bytes}};
}

}  // namespace

nlohmann::ordered_json placement_json(const PlacementSummary& summary) {
  return {{"partitioned", count_json(summary.partitioned)},
          {"replicated", count_json(summary.replicated)},
          {"single", count_json(summary.single)},
          {"dropped", count_json(summary.dropped)}};
}

nlohmann::ordered_json stage_json(const PipelineStage& stage) {
  return {{"index", stage.index}, {"count", stage.count}};
}

}  // namespace safeshuffle::output
