// Cutting ranges into the pieces that threads read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "io/reader.hpp"

namespace safeshuffle::io {

/// What O_DIRECT asks of offsets, lengths and addresses, in bytes; enough for all common disks.
inline constexpr std::uint64_t direct_alignment = 4096;

/// Smallest `ReaderOptions::chunk`, in bytes.
inline constexpr std::uint64_t smallest_chunk = direct_alignment;

/// One read, at most a chunk long.
struct Piece {
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::size_t bytes = 0;
  std::byte* destination = nullptr;
};

/// The pieces of all ranges in file order. They are no longer than `chunk` (>= smallest_chunk), and
/// short enough that `threads` all get work, unless that made them tiny. All inner boundaries are
/// multiples of the direct alignment in the file; a range's unaligned head is a piece of its own,
/// so that of the others all whole blocks can be read directly into aligned staging memory.
std::vector<Piece> cut(std::span<const ReadRange> ranges, std::uint64_t chunk, unsigned threads);

}  // namespace safeshuffle::io
