// A pack item as the pack kernel reads it: plain numbers, computed by the host.
//
// Work is counted in vectors, the 16 aligned bytes that one store fills. Every destination row is
// divided into its own vectors, of which the first and the last may belong to it only in part. The
// vectors of an item are numbered row by row and grouped into tiles, one for each block of threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace safeshuffle::device {

inline constexpr unsigned vector_bytes = 16;
inline constexpr unsigned warp_threads = 32;
inline constexpr unsigned pack_threads = 256;   ///< of one block
inline constexpr unsigned tile_vectors = 2048;  ///< 32 KiB of destination

enum class Conversion : std::uint8_t {
  none,
  f16_to_bf16,
  f16_to_f32,
  bf16_to_f16,
  bf16_to_f32,
  f32_to_f16,
  f32_to_bf16,
};

/// Sizes in bytes unless stated otherwise. A step is the distance between two vectors of one
/// thread: the `warp_threads` vectors of its warp.
struct PackEntry {
  const std::byte* source = nullptr;  ///< of the first row
  std::byte* destination = nullptr;   ///< of the first row
  std::uint64_t row_bytes = 0;        ///< in the destination
  std::uint64_t source_stride = 0;
  std::uint64_t destination_stride = 0;
  std::uint64_t vectors = 0;      ///< of all rows
  std::uint64_t row_vectors = 0;  ///< the most that a row can have, wherever it starts
  std::uint64_t reciprocal = 0;   ///< (2^64 - 1) / row_vectors
  std::uint64_t step_vectors = 0;
  std::uint64_t source_step = 0;       ///< of the whole rows in a step
  std::uint64_t destination_step = 0;  ///< of the whole rows in a step
  std::uint64_t first_tile = 0;        ///< counted through the table
  Conversion conversion = Conversion::none;
};

}  // namespace safeshuffle::device
