// Units in reading order → slabs.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/assignment.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// Packs one rank's units, in order, into as few slabs as `window` allows. A slab may exceed the
/// window by less than a page per range, for congruence with file offsets.
std::vector<Slab> fill_slabs(const Catalog& catalog, const std::vector<ReadUnit>& units,
                             std::uint64_t window);

/// Interleaves the ranks' slabs to [wave × world + rank]; ranks that run out get empty slabs.
/// Returns the number of waves.
std::uint32_t interleave(std::vector<std::vector<Slab>> rank_slabs, std::vector<Slab>& slabs);

/// Device bytes that hold the slab; a multiple of the page.
std::uint64_t slab_bytes(const Slab& slab);

}  // namespace safeshuffle::plan
