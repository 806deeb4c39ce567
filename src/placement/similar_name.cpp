#include "placement/similar_name.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <set>
#include <utility>

namespace safeshuffle::placement {
namespace {

// Limits on the cost of one message: tensors examined, different names compared, their lengths.
constexpr std::size_t most_tensors = 100'000;
constexpr std::size_t most_names = 10'000;
constexpr std::size_t longest_name = 300;

// A key relative to a part of the model lacks at most this many components.
constexpr std::ptrdiff_t most_components_before = 3;

/// Single-character insertions, deletions and replacements that make `a` into `b`, which is no
/// longer than `longest_name`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::array<std::size_t, longest_name + 1> row{};
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

/// A name that ends in the key is the same name with an unknown prefix.
std::size_t distance(std::string_view name, std::string_view key) {
  const bool is_prefixed =
      name.size() > key.size() && name.ends_with(key) && name[name.size() - key.size() - 1] == '.';
  return is_prefixed ? 0 : edit_distance(name, key);
}

std::ptrdiff_t components(std::string_view name) {
  return std::count(name.begin(), name.end(), '.') + 1;
}

/// Adds the modules in `name`, and the tensor itself, that have about as many components as a key.
void add_names(std::string_view name, std::ptrdiff_t wanted, std::set<std::string>& names) {
  std::ptrdiff_t count = 0;
  for (std::size_t end = 0;
       end != std::string_view::npos && count < wanted + most_components_before;) {
    end = name.find('.', end == 0 ? 0 : end + 1);
    if (++count >= wanted) names.emplace(name.substr(0, end));
  }
}

}  // namespace

std::string similar_name(const Matcher& matcher, const Catalog& catalog, std::string_view key) {
  const std::string wanted = generic(matcher.without_prefix(key));
  if (wanted.size() > longest_name) return {};
  std::set<std::string> names;
  const auto tensors = catalog.tensors().first(std::min(catalog.tensors().size(), most_tensors));
  for (const TensorInfo& tensor : tensors) {
    if (names.size() >= most_names) break;
    const std::string name = generic(matcher.without_prefix(tensor.name).substr(0, longest_name));
    add_names(name, components(wanted), names);
  }
  std::string best;
  std::size_t best_distance = wanted.size() / 4 + 2;
  for (const std::string& name : names) {
    const std::size_t found = distance(name, wanted);
    if (found >= best_distance) continue;
    best_distance = found;
    best = name;
  }
  return best;
}

}  // namespace safeshuffle::placement
