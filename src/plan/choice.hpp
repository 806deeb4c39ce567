// Selects the assignment of a load by what it costs.
#pragma once

#include <functional>

#include "safeshuffle/options.hpp"

#include "plan/geometry.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// Throws ConfigError.
void check_site(const Site& site);

/// Sets the assignment and the reason for it: round-robin, unless another is at least 5 % faster.
/// `fill` fills in the schedule for its assignment; it is last called for the one that is chosen.
void choose_assignment(Schedule& schedule, const Geometries& geometries, const Site& site,
                       const std::function<void()>& fill);

}  // namespace safeshuffle::plan
