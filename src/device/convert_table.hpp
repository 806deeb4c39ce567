// From two runtime dtypes to the function compiled for that pair.
#pragma once

#include "device/convert.hpp"

namespace safeshuffle::device {

/// `Family<From, To>::run` for the pair; null unless both are among F16, BF16, F32 and different.
template <template <DType, DType> class Family>
constexpr ConvertFunction convert_function(DType from, DType to) noexcept {
  using enum DType;
  if (from == F16 && to == BF16) return Family<F16, BF16>::run;
  if (from == F16 && to == F32) return Family<F16, F32>::run;
  if (from == BF16 && to == F16) return Family<BF16, F16>::run;
  if (from == BF16 && to == F32) return Family<BF16, F32>::run;
  if (from == F32 && to == F16) return Family<F32, F16>::run;
  if (from == F32 && to == BF16) return Family<F32, BF16>::run;
  return nullptr;
}

}  // namespace safeshuffle::device
