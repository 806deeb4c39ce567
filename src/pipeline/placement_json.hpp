// How tensors are placed, as JSON: the same in a plan and in a report.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "safeshuffle/target.hpp"

namespace safeshuffle::pipeline {

/// {"partitioned": {"tensors": 561, "bytes": 1489305600}, "replicated": …, "single": …, "dropped":
/// …}
nlohmann::ordered_json placement_json(const PlacementSummary& summary);

}  // namespace safeshuffle::pipeline
