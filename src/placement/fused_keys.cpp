#include "placement/fused_keys.hpp"

#include <array>

namespace safeshuffle::placement {
namespace {

/// `fused` below a module such as "layers.*.mlp" is `stored` below it, or below one of `modules`.
struct Fusion {
  std::string_view fused;
  std::string_view style;
  std::string_view stored;
  std::string_view stored_style;
};

constexpr std::array fusions{
    Fusion{"experts.gate_up_proj", "packed_colwise", "experts.*.gate_proj", "colwise"},
    Fusion{"experts.gate_up_proj", "packed_colwise", "experts.*.up_proj", "colwise"},
    Fusion{"experts.gate_up_proj", "packed_colwise", "experts.*.w1", "colwise"},
    Fusion{"experts.gate_up_proj", "packed_colwise", "experts.*.w3", "colwise"},
    Fusion{"experts.gate_up_proj", "packed_colwise", "input_linear", "packed_colwise"},
    Fusion{"experts.gate_up_proj", "packed_rowwise", "experts.fc1", "packed_rowwise"},
    Fusion{"experts.up_proj", "colwise", "experts.*.up_proj", "colwise"},
    Fusion{"experts.down_proj", "rowwise", "experts.*.down_proj", "rowwise"},
    Fusion{"experts.down_proj", "rowwise", "experts.*.w2", "rowwise"},
    Fusion{"experts.down_proj", "rowwise", "output_linear", "rowwise"},
    Fusion{"experts.down_proj", "colwise", "experts.fc2", "colwise"},
};

constexpr std::array<std::string_view, 3> modules{"mlp", "block_sparse_moe", "feed_forward"};

}  // namespace

std::vector<StoredKey> stored_keys(std::string_view key, std::string_view style) {
  std::vector<StoredKey> keys;
  for (const Fusion& fusion : fusions) {
    const std::string suffix = "." + std::string(fusion.fused);
    if (style != fusion.style || !key.ends_with(suffix)) continue;
    const std::string_view module = key.substr(0, key.size() - suffix.size());
    const std::string parent(module.substr(0, module.rfind('.') + 1));
    const std::string stored = "." + std::string(fusion.stored);
    keys.push_back({std::string(module) + stored, fusion.stored_style});
    for (const std::string_view other : modules) {
      keys.push_back({parent + std::string(other) + stored, fusion.stored_style});
    }
  }
  return keys;
}

}  // namespace safeshuffle::placement
