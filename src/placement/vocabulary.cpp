#include "placement/vocabulary.hpp"

#include <algorithm>
#include <array>

namespace safeshuffle::placement {
namespace {

constexpr Dim whole = std::nullopt;

constexpr Style for_activations(std::string_view word) {
  return {word, whole, whole, 1, true};
}

// Hugging Face transformers 5.23, distributed/tensor_parallel.py and expert_parallel.py, and what
// integrations/tensor_parallel.py had in 4.x.
constexpr std::array styles{
    Style{"colwise", -2, -1},
    Style{"colwise_rep", -2, -1},
    Style{"colwise_gather_output", -2, -1},
    Style{"local_colwise", -2, -1},
    Style{"rowwise", -1, whole},
    Style{"rowwise_rep", -1, whole},
    Style{"rowwise_split_input", -1, whole},
    Style{"local_rowwise", -1, whole},
    Style{"embedding_rowwise", 0, whole},
    Style{"embedding_colwise", 1, whole},
    Style{"packed_colwise", -2, -1, 2},
    Style{"packed_rowwise", -1, whole, 2},
    Style{"local_packed_rowwise", -1, whole, 2},
    Style{"replicate", whole, whole},
    for_activations("sequence_parallel"),
    for_activations("gather"),
    for_activations("local"),
    for_activations("local_params"),
    for_activations("all_reduce"),
    for_activations("replicated_with_grad_allreduce"),
    for_activations("mla_kv_a_proj"),
    for_activations("moe_tp_experts"),
    for_activations("moe_identity_expert"),
    for_activations("ep_router"),
    for_activations("ep_dispatch_experts"),
    Style{"grouped_gemm", whole, whole, 1, false, true},
};

std::string known_styles() {
  std::string list;
  for (const Style& style : styles) {
    if (!list.empty()) list += ", ";
    list += style.word;
  }
  return list;
}

}  // namespace

const Style& parse_style(std::string_view word, const std::string& key, const Document& document) {
  const auto style = std::find_if(styles.begin(), styles.end(),
                                  [&](const Style& candidate) { return candidate.word == word; });
  if (style != styles.end()) return *style;
  fail_config(document, key,
              "unknown style '" + std::string(word) + "'; known styles: " + known_styles());
}

}  // namespace safeshuffle::placement
