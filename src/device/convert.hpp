// Element conversion among F16, BF16 and F32, round to nearest even, with identical results on
// every device. F16 → F32 and BF16 → F32 are exact; everything else behaves as if converted to F32
// first (exact) and then rounded once. NaN stays NaN: the sign and the leading payload bits are
// kept and the quiet bit is set (as VCVTPH2PS, VCVTPS2PH and VCVTNEPS2BF16 do), except for BF16 →
// F32, which keeps every bit. Overflow gives ±Inf; subnormals are kept.
#pragma once

#include <cstddef>
#include <cstdint>

#include "safeshuffle/dtype.hpp"

namespace safeshuffle::device {

/// Converts `count` consecutive elements. Source and destination may have any alignment and must
/// not overlap.
using ConvertFunction = void (*)(const std::byte* source, std::byte* destination,
                                 std::size_t count);

/// The fastest function for this CPU. The types must be different ones of F16, BF16 and F32.
ConvertFunction select_convert(DType from, DType to);

/// The portable version that the vector code, and every other device, is tested against; same
/// types.
ConvertFunction scalar_convert(DType from, DType to);

}  // namespace safeshuffle::device
