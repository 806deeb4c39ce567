// The contents of a synthetic tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "safeshuffle/dtype.hpp"

namespace safeshuffle::synth {

/// Random data of one tensor, a pure function of (seed, tensor name, type, element index).
///
/// F16, BF16 and F32 elements are finite, with random sign and mantissa. Most magnitudes lie
/// between 2^-12 and 2^4; about one in thirty lies outside F16's normal range, if the type has such
/// values, so that conversions encounter underflow, subnormal numbers and overflow. Other types
/// have random bits. Thread-safe.
class Contents {
 public:
  Contents(std::uint64_t seed, std::string_view tensor, DType dtype);

  /// Writes the tensor's bytes from `offset` on; `offset` is a multiple of 8.
  void fill(std::uint64_t offset, std::span<std::byte> destination) const;

 private:
  std::uint64_t key_;
  DType dtype_;
};

}  // namespace safeshuffle::synth
