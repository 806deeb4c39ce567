// The size of a tensor.
#pragma once

#include <cstdint>
#include <optional>

#include "safeshuffle/dtype.hpp"
#include "safeshuffle/metadata.hpp"

#include "core/arithmetic.hpp"

namespace safeshuffle::core {

/// For shapes that a catalog has or that are parts of such: cannot overflow.
inline std::uint64_t tensor_bytes(const Shape& shape, DType dtype) noexcept {
  std::uint64_t bit_count = bits(dtype);
  for (const std::uint64_t extent : shape) bit_count *= extent;
  return bit_count / 8;
}

/// Bits of a tensor, empty on overflow. Like the reference library it multiplies the extents in
/// their order: [2^63, 2, 0] overflows before the 0 is seen, [0, 2^63, 2] does not.
inline std::optional<std::uint64_t> tensor_bits(DType dtype, const Shape& shape) noexcept {
  std::optional<std::uint64_t> product = 1;
  for (const std::uint64_t extent : shape) {
    product = checked_mul(*product, extent);
    if (!product) return std::nullopt;
  }
  return checked_mul(*product, bits(dtype));
}

}  // namespace safeshuffle::core
