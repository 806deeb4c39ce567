// The unit of reading.
#pragma once

#include <cstdint>

namespace safeshuffle::core {

/// The alignment that O_DIRECT requires of offsets, lengths and addresses, in bytes; enough for all
/// common disks. Devices therefore allocate memory at multiples of it, and the planner keeps
/// offsets in slabs congruent to those in files modulo it.
inline constexpr std::uint64_t page_bytes = 4096;

}  // namespace safeshuffle::core
