// Conversion by definition, slow and independent of the library: decode to a double, which is
// exact, then round that number once to the nearest multiple of the target's spacing, ties to even.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "safeshuffle/dtype.hpp"

namespace safeshuffle::testing {

/// An IEEE 754 layout: sign, exponent, fraction.
struct FloatFormat {
  int exponent_bits;
  int fraction_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int smallest_power() const { return 1 - bias() - fraction_bits; }  ///< of the subnormal spacing
  std::uint32_t fraction_mask() const { return (std::uint32_t{1} << fraction_bits) - 1; }
  std::uint32_t sign() const { return std::uint32_t{1} << (exponent_bits + fraction_bits); }
  std::uint32_t infinity() const { return sign() - (std::uint32_t{1} << fraction_bits); }
};

inline FloatFormat float_format(DType dtype) {
  if (dtype == DType::F16) return {5, 10};
  if (dtype == DType::BF16) return {8, 7};
  return {8, 23};
}

/// The number that a finite, non-negative pattern represents.
inline double decode(FloatFormat format, std::uint32_t magnitude) {
  const auto exponent = static_cast<int>(magnitude >> format.fraction_bits);
  const double fraction = magnitude & format.fraction_mask();
  if (exponent == 0) return std::ldexp(fraction, format.smallest_power());
  return std::ldexp(fraction + std::ldexp(1.0, format.fraction_bits),
                    format.smallest_power() + exponent - 1);
}

inline double round_half_to_even(double value) {
  const double below = std::floor(value);
  const double rest = value - below;
  if (rest != 0.5) return rest < 0.5 ? below : below + 1;
  return std::fmod(below, 2.0) == 0.0 ? below : below + 1;
}

/// The pattern nearest to a non-negative number.
inline std::uint32_t encode(FloatFormat format, double value) {
  if (value == 0) return 0;
  int power = 0;
  std::frexp(value, &power);
  const int spacing = std::max(power - format.fraction_bits - 1, format.smallest_power());
  const double count = round_half_to_even(std::ldexp(value, -spacing));
  const double largest = decode(format, format.infinity() - 1);
  const double next = largest + std::ldexp(1.0, format.bias() - format.fraction_bits);
  if (std::ldexp(count, spacing) >= next) return format.infinity();
  // The exponent field counts doublings of the spacing; a count of 2^(fraction_bits + 1) carries.
  return (static_cast<std::uint32_t>(spacing - format.smallest_power()) << format.fraction_bits) +
         static_cast<std::uint32_t>(count);
}

/// The sign-less NaN with the leading payload bits that fit, made quiet.
inline std::uint32_t convert_nan(FloatFormat from, FloatFormat to, std::uint32_t magnitude) {
  const std::uint32_t payload = magnitude & from.fraction_mask();
  const int narrower = from.fraction_bits - to.fraction_bits;
  const std::uint32_t kept = narrower > 0 ? payload >> narrower : payload << -narrower;
  return to.infinity() | (std::uint32_t{1} << (to.fraction_bits - 1)) | kept;
}

/// The pattern of `value` (a pattern of `from`) in `to`.
inline std::uint32_t reference_convert(DType from, DType to, std::uint32_t value) {
  if (from == DType::BF16 && to == DType::F32) return value << 16;
  const FloatFormat source = float_format(from);
  const FloatFormat target = float_format(to);
  const std::uint32_t sign = (value & source.sign()) != 0 ? target.sign() : 0;
  const std::uint32_t magnitude = value & (source.sign() - 1);
  if (magnitude > source.infinity()) return sign | convert_nan(source, target, magnitude);
  if (magnitude == source.infinity()) return sign | target.infinity();
  return sign | encode(target, decode(source, magnitude));
}

/// Two different dtypes among F16, BF16, F32.
struct ConvertPair {
  DType from;
  DType to;
};

inline std::vector<ConvertPair> convert_pairs() {
  using enum DType;
  return {{F16, BF16}, {F16, F32}, {BF16, F16}, {BF16, F32}, {F32, F16}, {F32, BF16}};
}

}  // namespace safeshuffle::testing
