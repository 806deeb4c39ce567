#include "synth/random.hpp"

// Header-only use of the library, so that nothing is linked.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace safeshuffle::synth {

std::uint64_t random_key(std::uint64_t seed, std::string_view name) {
  return XXH3_64bits_withSeed(name.data(), name.size(), seed);
}

}  // namespace safeshuffle::synth
