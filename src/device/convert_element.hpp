// Conversion of one element, on bit patterns: integer arithmetic only, so that the result depends
// neither on the floating-point state of the process nor on the device that runs it.
#pragma once

#include <bit>
#include <cstdint>

#include "safeshuffle/dtype.hpp"

namespace safeshuffle::device {

/// The bit pattern of one element of `dtype` (F16, BF16 or F32), and its conversion to F32 and
/// back.
template <DType dtype>
struct Element;

template <>
struct Element<DType::F32> {
  using Bits = std::uint32_t;
  static constexpr std::uint32_t to_f32(Bits value) noexcept { return value; }
  static constexpr Bits from_f32(std::uint32_t value) noexcept { return value; }
};

template <>
struct Element<DType::BF16> {
  using Bits = std::uint16_t;
  static constexpr std::uint32_t to_f32(Bits value) noexcept;
  static constexpr Bits from_f32(std::uint32_t value) noexcept;
};

template <>
struct Element<DType::F16> {
  using Bits = std::uint16_t;
  static constexpr std::uint32_t to_f32(Bits value) noexcept;
  static constexpr Bits from_f32(std::uint32_t value) noexcept;
};

/// One element converted from `From` to `To`.
template <DType From, DType To>
constexpr typename Element<To>::Bits convert_element(typename Element<From>::Bits value) noexcept {
  return Element<To>::from_f32(Element<From>::to_f32(value));
}

namespace f32 {
inline constexpr std::uint32_t magnitude_mask = 0x7fffffff;
inline constexpr std::uint32_t mantissa_mask = 0x007fffff;
inline constexpr std::uint32_t implicit_bit = 0x00800000;
inline constexpr std::uint32_t quiet_bit = 0x00400000;
inline constexpr std::uint32_t infinity = 0x7f800000;
inline constexpr std::uint32_t exponent_shift = 23;
inline constexpr std::uint32_t f16_min_normal = 0x38800000;  ///< 2^-14

/// Adding this to the exponent field multiplies a normal number by 2^`power`.
constexpr std::uint32_t exponent(std::uint32_t power) noexcept {
  return power << exponent_shift;
}
}  // namespace f32

/// value / 2^shift, rounded to nearest even; 0 < shift < 32, value + 2^(shift-1) < 2^32.
constexpr std::uint32_t shift_right_to_even(std::uint32_t value, std::uint32_t shift) noexcept {
  const std::uint32_t below_half = (std::uint32_t{1} << (shift - 1)) - 1;
  return (value + below_half + ((value >> shift) & 1)) >> shift;
}

constexpr std::uint32_t Element<DType::BF16>::to_f32(Bits value) noexcept {
  return std::uint32_t{value} << 16;
}

constexpr std::uint16_t Element<DType::BF16>::from_f32(std::uint32_t value) noexcept {
  const std::uint32_t sign = (value >> 16) & 0x8000;
  const std::uint32_t magnitude = value & f32::magnitude_mask;
  const std::uint32_t result = magnitude > f32::infinity ? (magnitude | f32::quiet_bit) >> 16
                                                         : shift_right_to_even(magnitude, 16);
  return static_cast<Bits>(sign | result);
}

constexpr std::uint32_t Element<DType::F16>::to_f32(Bits value) noexcept {
  const std::uint32_t sign = std::uint32_t{value & 0x8000U} << 16;
  const std::uint32_t magnitude = value & 0x7fffU;
  const std::uint32_t wide = magnitude << 13;
  if (magnitude == 0) return sign;
  if (magnitude < 0x0400) {  // subnormal: magnitude × 2^-24, where the integer is exact as a float
    return sign | (std::bit_cast<std::uint32_t>(static_cast<float>(magnitude)) - f32::exponent(24));
  }
  if (magnitude < 0x7c00) return sign | (wide + f32::exponent(127 - 15));
  return sign | f32::infinity | wide | (magnitude > 0x7c00 ? f32::quiet_bit : 0);
}

constexpr std::uint16_t Element<DType::F16>::from_f32(std::uint32_t value) noexcept {
  constexpr std::uint32_t infinity = 0x7c00;
  const std::uint32_t sign = (value >> 16) & 0x8000;
  const std::uint32_t magnitude = value & f32::magnitude_mask;
  std::uint32_t result = 0;
  if (magnitude > f32::infinity) {
    result = infinity | ((magnitude | f32::quiet_bit) & f32::mantissa_mask) >> 13;
  } else if (magnitude >= f32::f16_min_normal) {
    // Rounding may carry into the exponent, up to infinity, which gives the correct result.
    result = shift_right_to_even(magnitude - f32::exponent(127 - 15), 13);
    if (result > infinity) result = infinity;
  } else if (const std::uint32_t exponent = magnitude >> f32::exponent_shift; exponent > 101) {
    // A multiple of 2^-24; below 2^-25, half of the smallest, all rounds to zero.
    const std::uint32_t significand = (magnitude & f32::mantissa_mask) | f32::implicit_bit;
    result = shift_right_to_even(significand, 126 - exponent);
  }
  return static_cast<Bits>(sign | result);
}

}  // namespace safeshuffle::device
