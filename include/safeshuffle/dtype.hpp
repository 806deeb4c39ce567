// Element types of the safetensors format, and the conversion policy of a load.
// Source of names and widths: the `Dtype` enumeration of the safetensors reference implementation.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace safeshuffle {

enum class DType : std::uint8_t {
  BOOL,
  F4,  ///< E2M1, two elements per byte; shapes count elements
  F6_E2M3,
  F6_E3M2,
  U8,
  I8,
  F8_E5M2,
  F8_E4M3,
  F8_E8M0,
  F8_E4M3FNUZ,
  F8_E5M2FNUZ,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  C64,
  F64,
  I64,
  U64,
};

/// Width of one element in bits: 4, 6, 8, 16, 32 or 64.
unsigned bits(DType dtype) noexcept;

/// The format's name, such as "BF16". The view has static lifetime.
std::string_view name(DType dtype) noexcept;

/// The inverse of `name`; empty for any other text.
std::optional<DType> parse_dtype(std::string_view text) noexcept;

/// How a load converts floating-point tensors. F16, BF16 and F32 tensors become the named type,
/// rounded to nearest even; integers, BOOL, F64, C64 and the F4/F6/F8 types are never changed.
enum class DTypePolicy : std::uint8_t { keep, f16, bf16, f32 };

/// Whether policies apply to the type: true for F16, BF16 and F32.
bool is_convertible(DType dtype) noexcept;

/// The element type that a tensor of `stored` type has after a load with `policy`.
DType converted(DType stored, DTypePolicy policy) noexcept;

}  // namespace safeshuffle
