// Keys of a rule file: names of tensors and modules.
#pragma once

#include <string>

#include "placement/document.hpp"

namespace safeshuffle::placement {

/// Which tensors a rule applies to.
struct Key {
  std::string name;         ///< as in the file, such as "layers.*.mlp.up_proj"
  std::string path;         ///< where in the file, such as "rules[2].match"
  bool optional = false;    ///< whether the checkpoint may have no such tensor
  bool in_experts = false;  ///< of the section `experts`
  bool in_plan = false;     ///< of a plan in Hugging Face's vocabulary

  /// The key of the plan that this one is derived from (fused_keys.hpp); empty: it is in the file.
  std::string fused = {};
};

/// Throws ConfigError if the key is empty or has too many components.
void check_key(const Key& key, const Document& document);

}  // namespace safeshuffle::placement
