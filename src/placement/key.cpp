#include "placement/key.hpp"

#include <algorithm>
#include <cstddef>

namespace safeshuffle::placement {
namespace {

// Far above any model's; bounds the recursion over components.
constexpr std::ptrdiff_t max_components = 64;

}  // namespace

void check_key(const Key& key, const Document& document) {
  if (key.name.empty()) fail_config(document, key.path, "empty");
  if (std::count(key.name.begin(), key.name.end(), '.') >= max_components) {
    fail_config(document, key.path, "more than " + std::to_string(max_components) + " components");
  }
}

}  // namespace safeshuffle::placement
