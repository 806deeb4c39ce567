// What users can do about rules that do not fit a checkpoint: it depends on where the rules are
// from.
#pragma once

#include <string>

#include "placement/rule_set.hpp"

namespace safeshuffle::placement {

/// If a key covers no tensor.
std::string how_to_allow_absence(const RuleSet& rules, const Key& key);

/// If an axis that the rule with this key cuts does not divide among the ranks.
std::string how_to_allow_uneven(const RuleSet& rules, const Key& key);

}  // namespace safeshuffle::placement
