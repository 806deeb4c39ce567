// The unit of packing: one strided copy, with or without conversion. The plan creates tables of
// these, and the device executes them; POD, so that a table can be passed to a kernel unchanged.
#pragma once

#include <cstdint>

#include "safeshuffle/dtype.hpp"

namespace safeshuffle {

/// Which buffer a pack item writes to.
enum class PackTarget : std::uint8_t {
  arena,        ///< the rank's own finished tensors
  pack_buffer,  ///< from which runs are sent, and behind it the landing buffer
};

/// `rows` rows of `row_bytes` bytes, `source_stride` bytes apart in the source, become rows
/// `destination_stride` bytes apart in the target, each element converted from `from` to `to`.
/// A destination row has row_bytes / bits(from) × bits(to) bytes. `rows`, `row_bytes` > 0; strides
/// are at least a row. Source offsets may have any alignment. `from == to`, or both are among F16,
/// BF16, F32. Destinations of one table do not overlap.
struct PackItem {
  std::uint64_t source = 0;       ///< bytes from the start of the source buffer
  std::uint64_t destination = 0;  ///< bytes from the start of the target
  std::uint64_t rows = 0;
  std::uint64_t row_bytes = 0;           ///< in the source
  std::uint64_t source_stride = 0;       ///< bytes
  std::uint64_t destination_stride = 0;  ///< bytes
  DType from = DType::U8;
  DType to = DType::U8;
  PackTarget target = PackTarget::arena;
};

/// `bytes` of elements of type `from` after conversion to `to`.
inline std::uint64_t converted_bytes(std::uint64_t bytes, DType from, DType to) noexcept {
  return from == to ? bytes : bytes / (bits(from) / 8) * (bits(to) / 8);
}

/// Bytes of one destination row.
inline std::uint64_t destination_row_bytes(const PackItem& item) noexcept {
  return converted_bytes(item.row_bytes, item.from, item.to);
}

/// Whether its rows adjoin, in the source and in the target.
inline bool is_contiguous(const PackItem& item) noexcept {
  return item.rows == 1 || (item.source_stride == item.row_bytes &&
                            item.destination_stride == destination_row_bytes(item));
}

/// Whether it copies one contiguous block.
inline bool is_one_block(const PackItem& item) noexcept {
  return item.from == item.to && is_contiguous(item);
}

}  // namespace safeshuffle
