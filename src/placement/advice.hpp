// What users can do about rules that do not fit a checkpoint, depending on where the rules come
// from.
#pragma once

#include <string>

#include "placement/rule_set.hpp"

namespace safeshuffle::placement {

/// For a key that matches no tensor.
std::string how_to_allow_absence(const RuleSet& rules, const Key& key);

/// For a section that the rules lack and an option needs. `section` is an example.
std::string how_to_add_section(const RuleSet& rules, const std::string& section);

}  // namespace safeshuffle::placement
