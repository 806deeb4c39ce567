// Estimates how long a load takes.
#pragma once

#include "safeshuffle/costs.hpp"
#include "safeshuffle/options.hpp"

#include "plan/geometry.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// From the first read to the last tensor, by the costs of the site, of a schedule that is filled.
/// Every step of a rank takes its bytes by its rate. Storage works beside the ranks. On the host,
/// the steps of a rank share its cores and follow one another; on GPUs, they overlap.
StepSeconds estimate(const Schedule& schedule, const Geometries& geometries, const Site& site);

}  // namespace safeshuffle::plan
