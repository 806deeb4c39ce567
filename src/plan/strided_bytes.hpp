// Bytes at regular distances, as a strided view has them.
#pragma once

#include <cstdint>
#include <vector>

namespace safeshuffle::plan {

/// Runs of bytes: one at begin + i0 * stride0 + i1 * stride1 + ... for each index below the counts
/// of the loops.
struct StridedBytes {
  struct Loop {
    std::uint64_t count = 0;
    std::uint64_t stride = 0;  ///< not 0
    bool operator==(const Loop&) const = default;
  };

  std::uint64_t begin = 0;
  std::vector<Loop> loops;
  std::uint64_t run_bytes = 0;  ///< not 0
  bool operator==(const StridedBytes&) const = default;
};

/// How many there are, if none overlap.
std::uint64_t bytes_of(const StridedBytes& bytes);

/// From the first byte to behind the last one.
std::uint64_t span_of(const StridedBytes& bytes);

/// Joins loops, ordered by descending stride, that are one longer loop, or one longer run.
void merge_loops(StridedBytes& bytes);

/// Whether two of its runs overlap. Exact, like the next one; both take time for every index of the
/// longest loop only if strides cross, such as those of 3 and 2 elements. Bytes end below 2^62.
bool overlaps_itself(const StridedBytes& bytes);

bool overlap(const StridedBytes& a, const StridedBytes& b);

}  // namespace safeshuffle::plan
