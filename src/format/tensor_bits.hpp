// The size of a tensor from its shape.
#pragma once

#include <cstdint>
#include <optional>

#include "safeshuffle/metadata.hpp"

#include "core/arithmetic.hpp"

namespace safeshuffle::format {

/// Bits of a tensor, empty on overflow. Like the reference library it multiplies the extents in
/// their order: [2^63, 2, 0] overflows before the 0 is seen, [0, 2^63, 2] does not.
inline std::optional<std::uint64_t> tensor_bits(DType dtype, const Shape& shape) noexcept {
  std::optional<std::uint64_t> product = 1;
  for (const std::uint64_t extent : shape) {
    product = core::checked_mul(*product, extent);
    if (!product) return std::nullopt;
  }
  return core::checked_mul(*product, bits(dtype));
}

}  // namespace safeshuffle::format
