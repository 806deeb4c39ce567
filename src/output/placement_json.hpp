// Which tensors are loaded, and how they are placed, as JSON: the same in a plan and in a report.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "safeshuffle/target.hpp"

namespace safeshuffle::output {

/// {"partitioned": {"tensors": 561, "bytes": 1489305600}, "replicated": …, "single": …, "dropped":
/// …}
nlohmann::ordered_json placement_json(const PlacementSummary& summary);

/// {"index": 0, "count": 4}
nlohmann::ordered_json stage_json(const PipelineStage& stage);

}  // namespace safeshuffle::output
