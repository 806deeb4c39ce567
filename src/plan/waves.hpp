// Assigns reads, in reading order, to waves, and computes the slab of one wave.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/schedule.hpp"
#include "plan/segments.hpp"

namespace safeshuffle::plan {

/// Gives every read its wave, from the first one that is free: of each reader, whole tensors, in
/// order, into as few slabs as the window allows, each segment of a larger tensor into one of its
/// own. In layer order, no reader begins the next layer in an earlier wave than that in which the
/// last one ends a layer; what precedes the first counts as part of it. Returns the next wave that
/// is free. Throws PlanError if they cannot be counted.
std::uint32_t number_waves(const Schedule& schedule, std::uint32_t first_free,
                           std::span<std::vector<Read>> reads);

/// The segments that a rank reads of each line (see Segments) of a tensor that is sliced: from the
/// first one with bytes that it keeps to the last. It reads them one after the other, beginning
/// with its own first one, so that all ranks read at the same time.
struct Stretch {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};
Stretch stretch_of(const Segments& segments, const RankColumns& columns);

/// For how many waves a tensor is read that is sliced: of each line, as many as the longest stretch
/// of any rank has segments.
std::uint64_t slice_waves(const Schedule& schedule, std::uint32_t tensor);

/// Which segment a rank reads for one of these waves, counted from 0; none if its stretch is over.
std::optional<std::uint64_t> segment_for(const Read& slices, std::uint32_t wave,
                                         const Segments& segments, const Stretch& stretch);

/// What `rank` reads of a segment of a tensor that is sliced: a range around what it keeps, as far
/// as that is in one row, and otherwise all. `columns` is scratch memory.
Range read_part(const Schedule& schedule, std::uint32_t tensor, const Range& segment,
                std::uint32_t rank, RankColumns& columns);

/// The same of all segments: how many bytes.
std::uint64_t slice_bytes(const Schedule& schedule, std::uint32_t tensor, std::uint32_t rank,
                          RankColumns& columns);

/// What `reader` reads for `wave`; empty where it has nothing to read. Reuses the memory of `slab`.
/// A slab may exceed the window by less than a page per range, for congruence with file offsets.
void slab_at(const Schedule& schedule, std::uint32_t wave, std::uint32_t reader, Slab& slab);

/// Which of its slabs each rank uses for `wave`.
inline std::uint32_t slab_of(const Schedule& schedule, std::uint32_t wave) noexcept {
  return wave % schedule.slabs;
}

/// Device memory for the slab, in bytes; a multiple of the page.
std::uint64_t slab_bytes(const Slab& slab);

/// Stored bytes that all ranks read for `wave`.
std::uint64_t wave_bytes(const Schedule& schedule, std::uint32_t wave);

/// By target: the wave after which it is complete, that in which the last of its tensors ends; 0 if
/// it has no bytes.
std::vector<std::uint32_t> complete_after(const Schedule& schedule);

/// The first wave after which a target is complete: later than the first one if no tensor that is
/// read there ends there.
std::uint32_t first_complete_wave(const Schedule& schedule);

/// Reads that begin in the same slab: whole tensors, or one read of several segments, of which only
/// the first lies there.
struct ReadGroup {
  std::uint32_t wave = 0;
  std::uint32_t reader = 0;     ///< 0 if all ranks read
  std::span<const Read> reads;  ///< of the schedule's
};

/// All reads in groups, ordered by (wave, reader).
std::vector<ReadGroup> read_groups(const Schedule& schedule);

}  // namespace safeshuffle::plan
