// Splitting ranges into the pieces that threads read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "io/reader.hpp"

namespace safeshuffle::io {

/// One read, at most a chunk long.
struct Piece {
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::size_t bytes = 0;
  std::byte* destination = nullptr;
  bool may_leave = false;
  bool whole_pages = false;
};

/// The pieces of all ranges in file order. They are no longer than `chunk` (>=
/// core::smallest_chunk), and short enough that all `threads` get work, unless that made them tiny.
/// All inner boundaries are multiples of a page in the file.
std::vector<Piece> split_for(unsigned threads, std::span<const ReadRange> ranges,
                             std::uint64_t chunk);

/// The same, but all inner boundaries are the multiples of `chunk` in the file: object stores keep
/// objects in parts, and each request has a price.
std::vector<Piece> split_at_chunks(std::span<const ReadRange> ranges, std::uint64_t chunk);

}  // namespace safeshuffle::io
