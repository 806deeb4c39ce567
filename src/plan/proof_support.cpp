#include "plan/proof_support.hpp"

#include <algorithm>

#include "safeshuffle/error.hpp"

namespace safeshuffle::plan {

void fail_proof(const std::string& tensor, const std::string& cause) {
  throw PlanError(ErrorRecord{.tensor = tensor, .cause = "the plan cannot be proved: " + cause});
}

bool disjoint(std::vector<Range> ranges) {
  const auto by_begin = [](const Range& a, const Range& b) { return a.begin < b.begin; };
  if (!std::is_sorted(ranges.begin(), ranges.end(), by_begin)) {
    std::sort(ranges.begin(), ranges.end(), by_begin);
  }
  const auto overlap = [](const Range& a, const Range& b) { return b.begin < a.end; };
  return std::adjacent_find(ranges.begin(), ranges.end(), overlap) == ranges.end();
}

}  // namespace safeshuffle::plan
