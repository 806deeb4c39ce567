// All rules of one file, ready to be applied.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "placement/document.hpp"
#include "placement/matcher.hpp"
#include "placement/quantities.hpp"
#include "placement/rule.hpp"

namespace safeshuffle::placement {

/// The accepted forms of a rule file (docs/placement.md).
enum class Form : std::uint8_t { rule_file, bare_plan, model_config };

/// Which tensors a rule applies to.
struct Key {
  std::string name;       ///< as in the file, such as "layers.*.mlp.up_proj"
  std::string path;       ///< where in the file, such as "rules[2].match"
  bool optional = false;  ///< whether the checkpoint may have no such tensor
};

/// Immutable once made.
struct RuleSet {
  Document document;  ///< what it was made from
  Form form = Form::rule_file;
  bool built_in = false;  ///< chosen by config.json, not written by the user
  Matcher matcher{{}};    ///< name → index into `rules`
  std::vector<Rule> rules;
  std::vector<Key> keys;  ///< by rule
  bool strict = false;    ///< a tensor without rule is an error instead of replicated
};

/// Parses a rule file of any accepted form (docs/placement.md). Throws ConfigError.
RuleSet parse_rules(Document document, const Quantities& quantities);

/// The same rules as the text of a file of the form `rule_file`.
std::string rule_file_text(const RuleSet& rules);

/// The `model_types` of a rule file; empty if it names none. Throws ConfigError.
std::vector<std::string> model_types_of(const Document& document);

}  // namespace safeshuffle::placement
