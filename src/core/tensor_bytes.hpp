// The size of a tensor.
#pragma once

#include <cstdint>

#include "safeshuffle/dtype.hpp"
#include "safeshuffle/metadata.hpp"

namespace safeshuffle::core {

/// For shapes that a catalog has or that are parts of such: cannot overflow.
inline std::uint64_t tensor_bytes(const Shape& shape, DType dtype) noexcept {
  std::uint64_t bit_count = bits(dtype);
  for (const std::uint64_t extent : shape) bit_count *= extent;
  return bit_count / 8;
}

}  // namespace safeshuffle::core
