// All rules of one file, ready to be applied.
#pragma once

#include <string>
#include <vector>

#include "placement/document.hpp"
#include "placement/matcher.hpp"
#include "placement/quantities.hpp"
#include "placement/rule.hpp"

namespace safeshuffle::placement {

/// Immutable once made.
struct RuleSet {
  Matcher matcher{{}};  ///< name → index into `rules`
  std::vector<Rule> rules;
  bool strict = false;  ///< a tensor without rule is an error instead of replicated
};

/// Parses a rule file of any accepted form (docs/placement.md). Throws ConfigError.
RuleSet parse_rules(const Document& document, const Quantities& quantities);

/// The `model_types` of a rule file; empty if it names none. Throws ConfigError.
std::vector<std::string> model_types_of(const Document& document);

}  // namespace safeshuffle::placement
