// The part of the proof that is done once for all ranks whose shards have the same sizes: arenas
// and messages.
#pragma once

#include "plan/geometry.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// Proves that tensors, and runs, do not overlap in any arena; that from every slab of whole
/// tensors, each rank gets the run that the reader sends it, with every tensor at its place; and
/// that broadcast data is laid out identically on all ranks. For tensors that are read in segments,
/// prove_packing has already proved everything except the tensor's place. Throws PlanError.
void prove_arenas(const Schedule& schedule, const Geometries& geometries);

}  // namespace safeshuffle::plan
