// Vector conversion for x86-64.
#pragma once

#include "device/convert.hpp"

namespace safeshuffle::device {

/// Null where this CPU, or the architecture compiled for, lacks AVX2 and F16C.
ConvertFunction x86_convert(DType from, DType to) noexcept;

}  // namespace safeshuffle::device
