#include "placement/structure.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "safeshuffle/error.hpp"

#include "placement/unmatched.hpp"

namespace safeshuffle::placement {
namespace {

/// Whether the rules are for the tensor's own module, or for a top-level one: a key further up does
/// not say that its author knew what is below.
bool knows(const RuleSet& rules, std::size_t index, std::string_view name) {
  const std::string& key = rules.keys[index].name;
  const std::string_view below = rules.matcher.below(key, name);
  return below.find('.') == std::string_view::npos || key.find('.') == std::string::npos;
}

Structure compare(const BuiltIn& built_in, const Catalog& catalog, const Quantities& quantities) {
  Structure structure{built_in.name, parse_rules(built_in.document, quantities), {}};
  const RuleSet& rules = structure.rules;
  std::vector<bool> covering(rules.rules.size());
  std::set<std::string> known, unknown;
  for (const TensorInfo& tensor : catalog.tensors()) {
    const auto index = find_rule(rules, tensor.name, covering);
    const bool is_known = index && knows(rules, *index, tensor.name);
    (is_known ? known : unknown).insert(generic(tensor.name));
  }
  structure.known = known.size();
  structure.unknown.assign(unknown.begin(), unknown.end());
  structure.is_complete = !lacks_required(rules, covering);
  return structure;
}

}  // namespace

std::vector<Structure> rank_structures(const Catalog& catalog, const Quantities& quantities) {
  std::vector<Structure> structures;
  for (const BuiltIn& built_in : built_in_rules()) {
    try {
      structures.push_back(compare(built_in, catalog, quantities));
    } catch (const ConfigError&) {
      // It needs a number that this config.json does not give.
    }
  }
  std::ranges::stable_sort(structures, {}, [](const Structure& structure) {
    return std::tuple(structure.unknown.size(), !structure.is_complete, structure.rules.extended);
  });
  return structures;
}

}  // namespace safeshuffle::placement
