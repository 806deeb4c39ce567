#include "synth/contents.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "synth/random.hpp"

namespace safeshuffle::synth {
namespace {

// An IEEE-like type: sign, then exponent, then mantissa.
template <typename Bits, unsigned MantissaBits>
struct Float {
  using Word = Bits;
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

  static constexpr Bits finite(Bits random) {
    const auto field = static_cast<Bits>(random >> MantissaBits & mask);
    const auto kept = static_cast<Bits>(random & static_cast<Bits>(~(mask << MantissaBits)));
    return static_cast<Bits>(kept | static_cast<Bits>(exponent(field) << MantissaBits));
  }
};

// In blocks, so that the compiler can vectorise the operations on elements.
template <typename Lane, typename Map>
void fill_lanes(std::uint64_t key, std::uint64_t offset, std::span<std::byte> destination,
                Map&& map) {
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
    : key_(random_key(seed, tensor)), dtype_(dtype) {}

void Contents::fill(std::uint64_t offset, std::span<std::byte> destination) const {
  const auto floats = [&]<typename Type>(Type) {
    using Bits = typename Type::Word;
    fill_lanes<Bits>(key_, offset, destination, [](Bits bits) { return Type::finite(bits); });
  };
  // Random bytes; if the bits of `mask` equal `pattern`, those of `flip` are inverted.
  const auto bytes = [&](std::uint8_t mask, std::uint8_t pattern, std::uint8_t flip) {
    fill_lanes<std::uint8_t>(key_, offset, destination, [=](std::uint8_t byte) {
      return static_cast<std::uint8_t>(byte ^ ((byte & mask) == pattern ? flip : 0));
    });
  };
  switch (dtype_) {
    case DType::F16:
      return floats(Float<std::uint16_t, 10>{});
    case DType::BF16:
      return floats(Float<std::uint16_t, 7>{});
    case DType::F32:
    case DType::C64:
      return floats(Float<std::uint32_t, 23>{});
    case DType::F64:
      return floats(Float<std::uint64_t, 52>{});
    case DType::F8_E5M2:
      return bytes(0x7C, 0x7C, 0x40);
    case DType::F8_E4M3:
      return bytes(0x7F, 0x7F, 0x01);
    case DType::F8_E8M0:
      return bytes(0xFF, 0xFF, 0x80);
    case DType::F8_E4M3FNUZ:
    case DType::F8_E5M2FNUZ:
      return bytes(0xFF, 0x80, 0x80);
    case DType::BOOL:
      return fill_lanes<std::uint8_t>(key_, offset, destination, [](std::uint8_t byte) {
        return static_cast<std::uint8_t>(byte & 1);
      });
    default:
      return fill_lanes<std::uint64_t>(key_, offset, destination, std::identity{});
  }
}

}  // namespace safeshuffle::synth
