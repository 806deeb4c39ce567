#include "synth/contents.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

// Header-only use of the library, so that nothing is linked.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "synth/random.hpp"

namespace safeshuffle::synth {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

// An IEEE-like type: sign, then exponent, then mantissa.
template <typename Bits, unsigned MantissaBits>
struct Float {
  using Word = Bits;
  static constexpr unsigned exponent_bits = 8 * sizeof(Bits) - 1 - MantissaBits;
  static constexpr Bits mask = (Bits{1} << exponent_bits) - 1;
  static constexpr Bits bias = mask >> 1;

  // Sixteen exponents around 1. Instead of those, one value in 32 gives small numbers, and up to as
  // many give large ones. F16 has five bits only: its small ones are its subnormals.
  static constexpr Bits exponent(Bits random) {
    constexpr bool wide = exponent_bits > 5;
    constexpr Bits tiny = wide ? bias - 24 : 0;
    constexpr Bits huge = wide ? bias + 15 : mask - 1;
    const auto narrow = static_cast<Bits>(bias - 12 + (random & 15));
    const auto small = static_cast<Bits>(tiny + (wide ? (random >> 5 & 7) : 0));
    const auto large = static_cast<Bits>(huge + (wide ? (random >> 5 & 1) : 0));
    const Bits upper = (random & 31) == 31 && (random >> 6) == (mask >> 6) ? large : narrow;
    return (random & 31) == 0 ? small : upper;
  }

  static constexpr Bits finite(Bits random) {
    const auto field = static_cast<Bits>(random >> MantissaBits & mask);
    const auto kept = static_cast<Bits>(random & static_cast<Bits>(~(mask << MantissaBits)));
    return static_cast<Bits>(kept | static_cast<Bits>(exponent(field) << MantissaBits));
  }
};

template <typename Type>
std::uint64_t finite_lanes(std::uint64_t word) {
  using Bits = typename Type::Word;
  Bits lanes[sizeof(word) / sizeof(Bits)];
  std::memcpy(lanes, &word, sizeof(word));
  for (Bits& lane : lanes) lane = Type::finite(lane);
  std::memcpy(&word, lanes, sizeof(word));
  return word;
}

template <typename Test>
std::uint64_t without(std::uint64_t word, std::uint8_t flip, Test&& is_special) {
  std::uint8_t lanes[sizeof(word)];
  std::memcpy(lanes, &word, sizeof(word));
  for (std::uint8_t& lane : lanes) {
    if (is_special(lane)) lane = static_cast<std::uint8_t>(lane ^ flip);
  }
  std::memcpy(&word, lanes, sizeof(word));
  return word;
}

template <typename Transform>
void fill_words(std::uint64_t key, std::uint64_t offset, std::span<std::byte> destination,
                Transform&& transform) {
  std::uint64_t index = offset / sizeof(std::uint64_t);
  std::byte* out = destination.data();
  for (std::size_t left = destination.size(); left != 0; ++index) {
    const std::uint64_t word = transform(random_word(key, index));
    const std::size_t bytes = std::min(left, sizeof(word));
    std::memcpy(out, &word, bytes);
    out += bytes;
    left -= bytes;
  }
}

}  // namespace

std::uint64_t random_key(std::uint64_t seed, std::string_view name) {
  return XXH3_64bits_withSeed(name.data(), name.size(), seed);
}

Contents::Contents(std::uint64_t seed, std::string_view tensor, DType dtype)
    : key_(random_key(seed, tensor)), dtype_(dtype) {}

void Contents::fill(std::uint64_t offset, std::span<std::byte> destination) const {
  using Byte = std::uint8_t;
  using Word = std::uint64_t;
  const auto fill = [&](auto&& transform) { fill_words(key_, offset, destination, transform); };
  switch (dtype_) {
    case DType::F16:
      return fill([](Word w) { return finite_lanes<Float<std::uint16_t, 10>>(w); });
    case DType::BF16:
      return fill([](Word w) { return finite_lanes<Float<std::uint16_t, 7>>(w); });
    case DType::F32:
    case DType::C64:
      return fill([](Word w) { return finite_lanes<Float<std::uint32_t, 23>>(w); });
    case DType::F64:
      return fill([](Word w) { return finite_lanes<Float<std::uint64_t, 52>>(w); });
    case DType::F8_E5M2:
      return fill(
          [](Word w) { return without(w, 0x40, [](Byte b) { return (b & 0x7C) == 0x7C; }); });
    case DType::F8_E4M3:
      return fill(
          [](Word w) { return without(w, 0x01, [](Byte b) { return (b & 0x7F) == 0x7F; }); });
    case DType::F8_E8M0:
      return fill([](Word w) { return without(w, 0x80, [](Byte b) { return b == 0xFF; }); });
    case DType::F8_E4M3FNUZ:
    case DType::F8_E5M2FNUZ:
      return fill([](Word w) { return without(w, 0x80, [](Byte b) { return b == 0x80; }); });
    case DType::BOOL:
      return fill([](Word w) { return w & 0x0101010101010101U; });
    default:
      return fill([](Word w) { return w; });
  }
}

}  // namespace safeshuffle::synth
