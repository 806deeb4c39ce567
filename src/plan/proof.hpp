// The proof checker: proves from a schedule alone that the load it describes is correct.
#pragma once

#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// Proves that
///  1. every needed stored byte is read exactly once, if its tensor is sliced by each rank that
///  keeps
///     it, into its own place in a slab;
///  2. targets, and runs, do not overlap in any arena;
///  3. every send has a matching receive, and all ranks list the same broadcasts;
///  4. every byte of a target that a rank must hold (by its placement and composition alone) is
///     written exactly once, with the stored byte that they specify, or is a zero that they specify
///     and is written by nothing else; for lent memory, that each rank gets all stored bytes that
///     it needs, of which prove_destinations proves the rest.
/// Throws PlanError naming the first tensor or wave that fails.
///
/// It examines the slabs, arena offsets, pack and unpack items and messages themselves, as
/// `slab_at`, `arena_offsets` and `SlabTransfers` provide them to the load, not how they were
/// computed. It does not examine all of them, because their number is proportional to waves ×
/// ranks² and tensors × ranks, but one representative of each set of identical cases:
///
///  - One tensor of each geometry, for every rank (prove_packing). What a rank gets of a segment
///    depends on the tensor's geometry, the segment and the rank; the segment's place in the slab,
///    the run's place in the pack buffer and the tensor's place in the arena only move it. A run
///    that is sent directly from the slab has the same bytes as if it were packed. Where a share
///    lands only moves it, too.
///  - Some segments of each tensor. Segments between two boundaries of what ranks keep differ by a
///    multiple of the segment in the same ranks' columns, and rows of segments by whole rows
///    (representative_segments); their slabs, by their place in the file (prove_reading).
///  - Every slab of several tensors, but not for every rank. Which tensors are in a run, and at
///    which places of run and arena, depends only on the sizes of shards, so one of all consecutive
///    ranks with equal sizes represents them (prove_arenas).
///
/// The conditions of the first and the last (equal geometry, equal sizes) are compared for every
/// tensor and every rank. That identical cases behave identically is not proved here: tests compare
/// this proof with loads in memory, byte by byte (tests/support), of thousands of small schedules,
/// correct and damaged.
///
/// Memory is proportional to tensors + ranks, and so is time, times the number of rank classes; in
/// the worst case, when each rank has shards of different sizes, to tensors × ranks.
void prove(const Schedule& schedule);

}  // namespace safeshuffle::plan
