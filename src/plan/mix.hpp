// Hashing for tables of equal cases.
#pragma once

#include <cstdint>

namespace safeshuffle::plan {

/// `hash` with another value; good enough for the tables of planning, not for comparing plans (see
/// hash.hpp). The multiplier is 2^64 divided by the golden ratio (Knuth, TAOCP 3, 6.4).
constexpr std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) noexcept {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
  return hash ^ (hash >> 32);
}

}  // namespace safeshuffle::plan
