// The unit of reading.
#pragma once

#include <cstdint>

namespace safeshuffle::core {

/// What O_DIRECT asks of offsets, lengths and addresses, in bytes; enough for all common disks. So
/// devices allocate memory at multiples of this, and the planner keeps offsets in slabs congruent
/// to those in files modulo this.
inline constexpr std::uint64_t page_bytes = 4096;

}  // namespace safeshuffle::core
