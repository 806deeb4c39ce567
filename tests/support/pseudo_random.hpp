// Reproducible pseudo-random numbers, the same with every standard library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace safeshuffle::testing {

/// SplitMix64.
class PseudoRandom {
 public:
  explicit PseudoRandom(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  /// In [0, limit); limit > 0.
  std::uint64_t below(std::uint64_t limit) { return next() % limit; }

  std::vector<std::byte> bytes(std::size_t count) {
    std::vector<std::byte> result(count);
    for (std::size_t begin = 0; begin < count; begin += sizeof(std::uint64_t)) {
      const std::uint64_t word = next();
      std::memcpy(&result[begin], &word, std::min(sizeof word, count - begin));
    }
    return result;
  }

 private:
  std::uint64_t state_;
};

}  // namespace safeshuffle::testing
