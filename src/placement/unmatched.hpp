// Keys of a rule file that are about no tensor: mostly a typing error, or the rules of another
// model.
#pragma once

#include <vector>

#include "safeshuffle/metadata.hpp"

#include "placement/rule_set.hpp"

namespace safeshuffle::placement {

/// Throws ConfigError if there is a key that is not `optional` and covers no tensor of the catalog.
/// `covering` says of each key whether it covers one.
void check_keys(const RuleSet& rules, const Catalog& catalog, const std::vector<bool>& covering);

}  // namespace safeshuffle::placement
