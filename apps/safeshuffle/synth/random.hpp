// Counter-based random numbers: word i of a stream depends on its key and i alone, so that any part
// of a stream can be made in any order, by any thread, on any machine.
#pragma once

#include <cstdint>
#include <string_view>

namespace safeshuffle::synth {

/// The key of the stream called `name` under `seed`.
std::uint64_t random_key(std::uint64_t seed, std::string_view name);

/// Word `index` of the stream of `key`: the SplitMix64 sequence (Steele, Lea, Flood 2014).
constexpr std::uint64_t random_word(std::uint64_t key, std::uint64_t index) noexcept {
  std::uint64_t z = key + (index + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

}  // namespace safeshuffle::synth
