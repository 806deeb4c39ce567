// Which rank reads what.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// Stored bytes [begin, end) of a tensor that are read in one go: the whole tensor, or one chunk.
struct ReadUnit {
  std::uint32_t tensor = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t bytes() const noexcept { return end - begin; }
};

/// All units of the tensors that some rank needs, in catalog order. Tensors above `window` bytes
/// are cut in chunks of at most that.
std::vector<ReadUnit> read_units(const Schedule& schedule, std::uint64_t window);

/// The mode that `automatic` stands for on this catalog; other modes are returned as they are.
Assignment resolve(Assignment assignment, const Catalog& catalog,
                   const std::vector<ReadUnit>& units, std::uint32_t world);

/// The units of each rank, in reading order; each unit belongs to one rank. `assignment` resolved.
std::vector<std::vector<ReadUnit>> assign(Assignment assignment, const Catalog& catalog,
                                          const std::vector<ReadUnit>& units, std::uint32_t world);

}  // namespace safeshuffle::plan
