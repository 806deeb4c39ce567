// The part of the proof that is done once for all tensors of a geometry: packing.
#pragma once

#include "plan/geometry.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// Proves that `geometries` groups tensors as same_geometry does; that for each geometry, segment
/// (by representatives) and rank, the pack items and the message bring every stored byte that the
/// rank must hold to its place in the shard, once; and that no slab needs more than the pack
/// buffer. Throws PlanError.
void prove_packing(const Schedule& schedule, const Geometries& geometries);

}  // namespace safeshuffle::plan
