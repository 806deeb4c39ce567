// The parts of the proof. Each throws PlanError.
#pragma once

#include "plan/geometry.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// Proves that every needed stored byte is read exactly once, if `sliced` by each rank that keeps
/// it, into its own place in a slab.
void prove_reading(const Schedule& schedule, const Geometries& geometries);

/// Once for all tensors of a geometry: proves that `geometries` groups tensors as same_geometry
/// does; that for each geometry, segment (by representatives) and rank, the pack items and the
/// message bring every stored byte that the rank must hold to its place in the shard, once; and
/// that no slab needs more than the pack buffer.
void prove_packing(const Schedule& schedule, const Geometries& geometries);

/// Once for all ranks whose shards have the same sizes: proves that tensors, and runs, do not
/// overlap in any arena; that from every slab of whole tensors, each rank gets the run that the
/// reader sends it, with every tensor at its place; and that broadcast data is laid out identically
/// on all ranks. For tensors that are read in segments, prove_packing has already proved everything
/// except the tensor's place.
void prove_arenas(const Schedule& schedule, const Geometries& geometries);

/// Of targets that are not simply stored tensors: proves, given that every rank gets its share of
/// every stored tensor, that shares which land are unpacked to where the compositions and
/// placements of their targets say; that shares which arrive in place already are what these say;
/// and that all other bytes of the shards are zeros that they ask for.
void prove_compositions(const Schedule& schedule, const Geometries& geometries);

}  // namespace safeshuffle::plan
