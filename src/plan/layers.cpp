#include "plan/layers.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "placement/matcher.hpp"

namespace safeshuffle::plan {
namespace {

// Modules beside a stack that data passes through after it.
constexpr std::array<std::string_view, 20> later_modules{"norm",
                                                         "final_norm",
                                                         "final_layernorm",
                                                         "final_layer_norm",
                                                         "layer_norm",
                                                         "norm_f",
                                                         "ln_f",
                                                         "embedding_norm",
                                                         "hc_pre",
                                                         "hc_head",
                                                         "lm_head",
                                                         "head",
                                                         "embed_out",
                                                         "output",
                                                         "proj_out",
                                                         "score",
                                                         "classifier",
                                                         "cls",
                                                         "project_out",
                                                         "mtp"};

// "model.layers." and 7.
struct Numbered {
  std::string_view stack;
  std::uint64_t number = 0;
};

// Up to the first number in the name; none if it has no number.
std::optional<Numbered> numbered_module(std::string_view name) {
  for (std::size_t at = 0;; ++at) {
    if (const auto number = placement::leading_number(name.substr(at))) {
      return Numbered{name.substr(0, at), *number};
    }
    at = name.find('.', at);
    if (at == std::string_view::npos) return std::nullopt;
  }
}

// The first component in which the name differs from those of the stack.
std::string_view module_beside(std::string_view stack, std::string_view name) {
  const auto differing = std::ranges::mismatch(stack, name).in2;
  const auto common = name.substr(0, static_cast<std::size_t>(differing - name.begin()));
  name.remove_prefix(common.rfind('.') + 1);
  return name.substr(0, name.find('.'));
}

// By stack; of tensors that are read.
std::map<std::string_view, std::uint64_t> stack_bytes(const Schedule& schedule) {
  std::map<std::string_view, std::uint64_t> bytes;
  const auto tensors = schedule.catalog.tensors();
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    if (!is_read(schedule, i)) continue;
    if (const auto module = numbered_module(tensors[i].name)) {
      bytes[module->stack] += tensors[i].bytes;
    }
  }
  return bytes;
}

// The numbers of a stack's modules that are read, ascending.
std::vector<std::uint64_t> numbers_of(const Schedule& schedule, std::string_view stack) {
  std::vector<std::uint64_t> numbers;
  const auto tensors = schedule.catalog.tensors();
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    if (!is_read(schedule, i)) continue;
    const auto module = numbered_module(tensors[i].name);
    if (module && module->stack == stack) numbers.push_back(module->number);
  }
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

std::uint32_t depth_of(std::string_view name, std::string_view stack,
                       const std::vector<std::uint64_t>& numbers) {
  const auto module = numbered_module(name);
  if (module && module->stack == stack) {
    const auto at = std::ranges::lower_bound(numbers, module->number);
    return static_cast<std::uint32_t>(at - numbers.begin()) + 1;
  }
  const bool is_later =
      std::ranges::find(later_modules, module_beside(stack, name)) != later_modules.end();
  return is_later ? static_cast<std::uint32_t>(numbers.size()) + 1 : 0;
}

}  // namespace

Layers find_layers(const Schedule& schedule) {
  const std::map<std::string_view, std::uint64_t> stacks = stack_bytes(schedule);
  const auto tensors = schedule.catalog.tensors();
  if (stacks.empty()) return {{}, std::vector<std::uint32_t>(tensors.size())};
  using Stack = std::pair<const std::string_view, std::uint64_t>;
  const std::string_view largest = std::ranges::max_element(stacks, {}, &Stack::second)->first;
  Layers layers{numbers_of(schedule, largest), {}};
  layers.depth.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) {
    layers.depth.push_back(depth_of(tensor.name, largest, layers.numbers));
  }
  return layers;
}

}  // namespace safeshuffle::plan
