// The built-in rules whose structure a checkpoint has, by the names of its tensors.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "safeshuffle/metadata.hpp"

#include "placement/built_in.hpp"
#include "placement/quantities.hpp"
#include "placement/rule_set.hpp"

namespace safeshuffle::placement {

struct Structure {
  std::string name;  ///< of the built-in rules
  RuleSet rules;

  /// Names, numbers as `*`, of tensors that the rules do not know: no key is for their module.
  std::vector<std::string> unknown;
  std::size_t known = 0;     ///< number of such names that they know
  bool is_complete = false;  ///< the checkpoint has what the rules require
};

/// The built-in rules, nearest first: those that know most of the names; of these, those that
/// extend the fewest others.
std::vector<Structure> rank_structures(const Catalog& catalog, const Quantities& quantities);

/// Whether a checkpoint has this structure.
inline bool fits(const Structure& structure) {
  return structure.is_complete && structure.unknown.empty();
}

}  // namespace safeshuffle::placement
