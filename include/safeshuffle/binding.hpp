// Bindings: memory that the caller lends, and the elements of stored tensors that fill it. Plain
// data, pure; safe to share between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "safeshuffle/dtype.hpp"
#include "safeshuffle/metadata.hpp"
#include "safeshuffle/target.hpp"

namespace safeshuffle {

/// Some elements of a stored tensor as a strided view: element (i0, i1, ...) is element
/// offset + i0 * strides[0] + i1 * strides[1] + ... of the tensor, counted in row-major order.
/// Along each dimension, it must step over all that the dimensions of smaller strides cover, so
/// that no element is there twice. Of a box of zeros, only `sizes` counts.
struct Box {
  std::string tensor;                  ///< name of the stored tensor, which may be empty
  std::uint64_t offset = 0;            ///< of the first element
  Shape sizes;                         ///< empty: one element; with a 0 among them: none
  std::vector<std::uint64_t> strides;  ///< in elements, as many as `sizes`
  bool is_zeros = false;
};

/// Memory of the caller that a box fills: element (i0, i1, ...) lies i0 * strides[0] +
/// i1 * strides[1] + ... elements of `dtype` behind `data`, each in a place of its own. In any
/// order, and with any gaps: a view may be transposed, and rows padded.
struct Binding {
  Box box;
  std::byte* data = nullptr;           ///< on the rank's device; any alignment
  DType dtype = DType::U8;             ///< as stored; or else both must be among F16, BF16, F32
  std::vector<std::uint64_t> strides;  ///< as many as the box has sizes
  std::string name;                    ///< of the destination, for errors
};

/// Strides of elements in row-major order without gaps.
std::vector<std::uint64_t> dense_strides(const Shape& shape);

/// The box of these indices of a tensor: one interval per dimension.
Box box_of(const TensorInfo& tensor, std::span<const Interval> indices);

/// Where one rank wants its shard of a target.
struct ShardMemory {
  std::byte* data = nullptr;
  DType dtype = DType::U8;
  std::vector<std::uint64_t> strides = {};  ///< empty: dense
};

/// The bindings that fill the shard of `rank` of `world` as a load would, zeros included; none if
/// the rank does not hold the target, or holds no element of it. Throws PlanError if it cannot be
/// placed this way, if a part of it begins inside a byte, or if another tensor of the catalog has
/// the same name as one that fills it.
std::vector<Binding> bindings_of(const Catalog& catalog, const Target& target, std::uint32_t rank,
                                 std::uint32_t world, const ShardMemory& memory);

}  // namespace safeshuffle
