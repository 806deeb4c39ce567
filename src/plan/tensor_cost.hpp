// Decides for each tensor by what it costs: to read it in slices, or once, and exchange it.
#pragma once

#include <cstdint>
#include <vector>

#include "safeshuffle/options.hpp"

#include "plan/geometry.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// What is not slower, or less even, by more than this makes no difference.
inline constexpr double tolerance = 0.05;

/// By geometry: whether reading a tensor in slices takes less time than reading it once, in equal
/// parts by all ranks, and scattering it, or broadcasting it if it is replicated. Never if slices
/// would be small, or read more from storage than the tensor has.
///
/// Counts what the tensor takes of ranks on average: over all tensors, what they keep is even, or
/// the estimate of the whole load finds that it is not. `schedule` needs its window, but not to be
/// filled.
std::vector<bool> sliced_by_cost(const Schedule& schedule, const Geometries& geometries,
                                 const Site& site);

}  // namespace safeshuffle::plan
