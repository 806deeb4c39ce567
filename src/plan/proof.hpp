// The proof checker: from a schedule alone, that the load it describes is right.
#pragma once

#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// Proves that
///  1. every needed stored byte is read exactly once, into a place of a slab of its own;
///  2. tensors, and runs, do not overlap in any arena;
///  3. every send has the receive that matches it, and all ranks list the same broadcasts;
///  4. every byte that a rank must hold (by its placement alone) is written exactly once, with the
///     stored byte that the placement says.
/// Throws PlanError naming the first tensor or wave that fails.
///
/// It looks at the slabs, arena offsets, pack items and messages themselves, as `slab_at`,
/// `arena_offsets` and `SlabTransfers` give them to the load, not at how they were computed. But
/// not at all of them, for they are in proportion to waves × ranks² and tensors × ranks; at one of
/// each set of those that are alike:
///
///  - Of one tensor. What a rank gets of a segment depends on the tensor's geometry, the segment
///  and the
///    rank; the segment's place in the slab, the run's place in the pack buffer and the tensor's
///    place in the arena only move it, and a run that is sent as it lies in the slab has the same
///    bytes as if it were packed. So one tensor of each geometry is looked at, for every rank
///    (prove_packing).
///  - Of the segments of one tensor. Segments between two boundaries of what ranks keep differ by a
///    multiple of the segment in the same ranks' columns, and rows of segments by whole rows
///    (representative_segments); their slabs, by their place in the file (prove_reading).
///  - Of slabs of several tensors. Every one is looked at, but not for every rank: which tensors
///  are
///    in a run, and at which places of run and arena, depends only on the sizes of shards, so one
///    of all consecutive ranks with equal sizes stands for them (prove_arenas).
///
/// What the first and the last of these rest on (equal geometry, equal sizes) is compared for every
/// tensor and every rank. That what is alike behaves alike is the part not proved here: tests
/// compare this proof with one that looks at every byte's item and message (tests/support), on
/// thousands of small schedules, sound and damaged.
///
/// Memory is in proportion to tensors + ranks. Time as well, times the number of rank classes; in
/// the worst case, where each rank has shards of other sizes, tensors × ranks.
void prove(const Schedule& schedule);

}  // namespace safeshuffle::plan
