// Copies from a stored tensor into memory that a caller lends: what bindings are made into.
#pragma once

#include <cstdint>
#include <vector>

#include "safeshuffle/dtype.hpp"

#include "core/pack_item.hpp"
#include "plan/cut.hpp"
#include "plan/segments.hpp"
#include "plan/strided_bytes.hpp"

namespace safeshuffle::plan {

/// Runs of stored bytes of a tensor, each of whole elements, and where each of them goes,
/// converted.
struct StridedCopy {
  struct Loop {
    std::uint64_t count = 0;
    std::uint64_t source_stride = 0;       ///< bytes
    std::uint64_t destination_stride = 0;  ///< bytes
  };

  std::uint32_t tensor = 0;       ///< index into Catalog::tensors()
  std::uint64_t source = 0;       ///< stored byte of the tensor with which the first run begins
  std::uint64_t destination = 0;  ///< of the first run, from the base of the lent memory
  std::vector<Loop> loops;        ///< of descending source strides, which are at least the span of
                                  ///< all loops within them
  std::uint64_t run_bytes = 0;    ///< in the tensor
  DType from = DType::U8;
  DType to = DType::U8;
};

/// The stored bytes that it copies.
StridedBytes source_of(const StridedCopy& copy);

/// The bytes that it writes. Loops are not ordered by their strides.
StridedBytes destination_of(const StridedCopy& copy);

/// Joins loops that are one longer loop, or one longer run, at both ends.
void merge_loops(StridedCopy& copy);

/// Where bytes that a rank keeps of a tensor lie, one after the other.
struct KeptPlace {
  std::uint64_t tensor_row_bytes = 0;
  const KeptColumns& kept;
  std::uint64_t offset = 0;  ///< of the first one that it keeps, modulo 2^64: it may not be there

  /// The place of a stored byte that is kept.
  std::uint64_t of(std::uint64_t stored) const {
    return offset + bytes_kept_before(tensor_row_bytes, kept, stored);
  }
};

/// Appends the items that bring what `copy` copies of the stored bytes `part` from there to the
/// lent memory. Boundaries of the part are boundaries of elements. Items ascend in the tensor.
void append_copy_items(const StridedCopy& copy, const Range& part, const KeptPlace& place,
                       std::vector<PackItem>& items);

}  // namespace safeshuffle::plan
