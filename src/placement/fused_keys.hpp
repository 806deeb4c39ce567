// Keys of Hugging Face's plans for parameters that are fused while loading, as keys for what the
// files store. From transformers 5.24, conversion_mapping.py.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace safeshuffle::placement {

/// A key with its style.
struct StoredKey {
  std::string name;
  std::string_view style;
};

/// For "layers.*.mlp.experts.gate_up_proj": "packed_colwise", the experts' projections of gate and
/// up under the names that families store them by. Empty for other keys.
std::vector<StoredKey> stored_keys(std::string_view key, std::string_view style);

}  // namespace safeshuffle::placement
