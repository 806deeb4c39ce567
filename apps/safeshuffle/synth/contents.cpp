#include "synth/contents.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

// Header-only use of the library, so that nothing is linked.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace safeshuffle::synth {
namespace {

// Word `index` of the stream of `key`: the SplitMix64 sequence (Steele, Lea, Flood 2014). It
// depends on both alone, so that any part can be made in any order, by any thread, on any machine.
constexpr std::uint64_t random_word(std::uint64_t key, std::uint64_t index) noexcept {
  std::uint64_t z = key + (index + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

// An IEEE-like type: sign, then exponent, then mantissa.
template <typename Bits, unsigned MantissaBits>
struct Float {
  static constexpr unsigned exponent_bits = 8 * sizeof(Bits) - 1 - MantissaBits;
  static constexpr Bits mask = (Bits{1} << exponent_bits) - 1;
  static constexpr Bits bias = mask >> 1;

  // Sixteen exponents around 1, but one value in 32 gives small numbers, and up to as many give
  // large ones. F16 has only five bits: its small numbers are its subnormals.
  static constexpr bool wide = exponent_bits > 5;
  static constexpr Bits lowest = wide ? static_cast<Bits>(bias - 24) : Bits{0};
  static constexpr Bits highest = static_cast<Bits>(wide ? bias + 15 : mask - 1);

  static constexpr Bits exponent(Bits random) {
    const auto narrow = static_cast<Bits>(bias - 12 + (random & 15));
    const auto small = static_cast<Bits>(lowest + (wide ? (random >> 5 & 7) : 0));
    const auto large = static_cast<Bits>(highest + (wide ? (random >> 5 & 1) : 0));
    const auto low = static_cast<Bits>(random & 31);
    const Bits upper = low == 31 && random >> 6 == mask >> 6 ? large : narrow;
    return low == 0 ? small : upper;
  }

  constexpr Bits operator()(Bits random) const {
    const auto field = static_cast<Bits>(random >> MantissaBits & mask);
    const auto kept = static_cast<Bits>(random & static_cast<Bits>(~(mask << MantissaBits)));
    return static_cast<Bits>(kept | static_cast<Bits>(exponent(field) << MantissaBits));
  }
};

// In blocks, so that the compiler can vectorise the operations on elements.
template <typename Lane, typename Map>
void fill_lanes(std::uint64_t key, std::uint64_t offset, std::span<std::byte> destination,
                Map map) {
  std::array<std::uint64_t, 512> words;
  std::array<Lane, sizeof(words) / sizeof(Lane)> lanes;
  for (std::size_t at = 0; at < destination.size(); at += sizeof(words)) {
    const std::uint64_t first = (offset + at) / sizeof(std::uint64_t);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = random_word(key, first + i);
    std::memcpy(lanes.data(), words.data(), sizeof(words));
    for (Lane& lane : lanes) lane = map(lane);
    std::memcpy(destination.data() + at, lanes.data(),
                std::min(sizeof(lanes), destination.size() - at));
  }
}

}  // namespace

Contents::Contents(std::uint64_t seed, std::string_view tensor, DType dtype)
    : key_(XXH3_64bits_withSeed(tensor.data(), tensor.size(), seed)), dtype_(dtype) {}

void Contents::fill(std::uint64_t offset, std::span<std::byte> destination) const {
  switch (dtype_) {
    case DType::F16:
      return fill_lanes<std::uint16_t>(key_, offset, destination, Float<std::uint16_t, 10>{});
    case DType::BF16:
      return fill_lanes<std::uint16_t>(key_, offset, destination, Float<std::uint16_t, 7>{});
    case DType::F32:
      return fill_lanes<std::uint32_t>(key_, offset, destination, Float<std::uint32_t, 23>{});
    default:
      return fill_lanes<std::uint64_t>(key_, offset, destination, std::identity{});
  }
}

}  // namespace safeshuffle::synth
