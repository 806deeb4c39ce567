// How rows are read that lie apart from each other in a file that the page cache has, and what that
// takes. Measured: docs/results.md.
#pragma once

#include <algorithm>
#include <cstdint>

namespace safeshuffle::core {

/// Rows that begin this many bytes apart, or fewer, are read in one call, with what lies between
/// them, and copied from there; of others, each is read by itself. That is faster from some 4,
/// 8 or 12 KiB on, depending on the processor; this is near their geometric mean.
inline constexpr std::uint64_t widest_joint_stride = 7168;

inline bool are_read_jointly(std::uint64_t stride) noexcept {
  return stride <= widest_joint_stride;
}

/// Extra cost of one row among many, in bytes of a contiguous read: half the stride if rows are
/// read jointly, otherwise half the widest joint stride.
inline std::uint64_t cached_row_overhead(std::uint64_t stride) noexcept {
  return std::min(stride, widest_joint_stride) / 2;
}

}  // namespace safeshuffle::core
