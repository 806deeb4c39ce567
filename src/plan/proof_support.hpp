// What the parts of the proof share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/segments.hpp"

namespace safeshuffle::plan {

/// Throws PlanError: the plan cannot be proved. `tensor` may be empty.
[[noreturn]] void fail_proof(const std::string& tensor, const std::string& cause);

/// Throws PlanError unless `condition` holds.
inline void require(bool condition, const char* cause) {
  if (!condition) fail_proof({}, cause);
}

/// Whether no two of the ranges overlap. Fast if they are already in order.
bool disjoint(std::vector<Range> ranges);

}  // namespace safeshuffle::plan
