// The styles of Hugging Face's `tp_plan`, and what each does to a weight and to its bias.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "placement/document.hpp"

namespace safeshuffle::placement {

/// The dimension along which a tensor is split; negative counts from the last. None: replicated.
using Dim = std::optional<int>;

/// What a style specifies. Only the placement of parameters matters here, not how activations move.
struct Style {
  std::string_view word;
  Dim weight;
  Dim bias;             ///< of tensors named `bias` or with one dimension
  unsigned blocks = 1;  ///< fused blocks of equal size along the dimension

  /// The style describes how activations move, so its module may have no parameters at all.
  bool for_activations = false;

  /// Whole experts are dealt to the ranks; the dimensions do not matter.
  bool deals_experts = false;
};

/// Throws ConfigError if `word` is unknown; `key` is the path of the word in the document.
const Style& parse_style(std::string_view word, const std::string& key, const Document& document);

}  // namespace safeshuffle::placement
