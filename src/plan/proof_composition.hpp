// The part of the proof that concerns targets that are not simply stored tensors.
#pragma once

#include "plan/geometry.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// Proves, given that every rank gets its share of every stored tensor, that shares which land are
/// unpacked to where the compositions and placements of their targets say; that shares which arrive
/// in place already are what these say; and that all other bytes of the shards are zeros that they
/// ask for. Throws PlanError.
void prove_compositions(const Schedule& schedule, const Geometries& geometries);

}  // namespace safeshuffle::plan
