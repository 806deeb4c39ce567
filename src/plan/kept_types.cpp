#include "plan/kept_types.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/glob.hpp"

namespace safeshuffle::plan {
namespace {

constexpr std::array<std::string_view, 9> kept_leaves{"weight_scale",
                                                      "weight_scale_inv",
                                                      "weight_scale_2",
                                                      "weight_global_scale",
                                                      "input_scale",
                                                      "input_global_scale",
                                                      "input_scale_ub",
                                                      "A_log",
                                                      "e_score_correction_bias"};

}  // namespace

bool keeps_type(const TensorInfo& tensor, const std::vector<std::string>& patterns) {
  const std::string_view leaf = std::string_view(tensor.name).substr(tensor.name.rfind('.') + 1);
  if (std::ranges::find(kept_leaves, leaf) != kept_leaves.end()) return true;
  return std::ranges::any_of(patterns, [&](const std::string& pattern) {
    return core::matches_glob(pattern, tensor.name);
  });
}

}  // namespace safeshuffle::plan
