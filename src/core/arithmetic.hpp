// Checked and aligned unsigned 64-bit arithmetic: sizes from files are never trusted to fit.
#pragma once

#include <cstdint>
#include <optional>

namespace safeshuffle::core {

/// a × b, empty on overflow.
constexpr std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// a + b, empty on overflow.
constexpr std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

/// Whether [offset, offset + length) lies in [0, size), safe against wrap-around.
constexpr bool in_bounds(std::uint64_t offset, std::uint64_t length, std::uint64_t size) noexcept {
  return offset <= size && length <= size - offset;
}

/// The smallest multiple of `alignment` (a power of two) that is >= value.
constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) noexcept {
  return (value + alignment - 1) & ~(alignment - 1);
}

/// The largest multiple of `alignment` (a power of two) that is <= value.
constexpr std::uint64_t align_down(std::uint64_t value, std::uint64_t alignment) noexcept {
  return value & ~(alignment - 1);
}

/// a / b rounded up; b > 0.
constexpr std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) noexcept {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace safeshuffle::core
