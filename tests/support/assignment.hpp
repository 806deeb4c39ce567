// Where plans are made whose assignment is to be chosen, and what they say about the choice.
#pragma once

#include <string>

#include "safeshuffle/options.hpp"
#include "safeshuffle/plan.hpp"

namespace safeshuffle::testing {

/// With all files in the page cache.
inline Site cached(DeviceKind device = DeviceKind::host) {
  Site site;
  site.device = device;
  site.cached_share = 1;
  return site;
}

/// Whether the reason for the assignment contains the text.
inline bool has(const Plan& plan, const std::string& text) {
  return plan.assignment_reason().find(text) != std::string::npos;
}

}  // namespace safeshuffle::testing
