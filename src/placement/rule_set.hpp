// All rules of one file, ready to be applied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "placement/compose.hpp"
#include "placement/document.hpp"
#include "placement/matcher.hpp"
#include "placement/pipeline.hpp"
#include "placement/quantised.hpp"
#include "placement/quantities.hpp"
#include "placement/rule.hpp"
#include "placement/rule_parser.hpp"

namespace safeshuffle::placement {

/// The accepted forms of a rule file (docs/placement.md).
enum class Form : std::uint8_t { rule_file, bare_plan };

/// Immutable once made.
struct RuleSet {
  Document document;  ///< what it was made from
  Form form = Form::rule_file;
  bool built_in = false;      ///< chosen by config.json, not written by the user
  bool inferred = false;      ///< built in, and chosen by the names of the tensors
  std::size_t extended = 0;   ///< how many built-in files they extend
  bool is_replicate = false;  ///< TpPlan::replicate_all: there is no file
  Matcher matcher{{}};        ///< name → index into `rules`
  std::vector<Rule> rules;
  std::vector<Key> keys;           ///< by rule
  std::vector<std::string> notes;  ///< on keys of plans that match the same names
  bool strict = false;             ///< a tensor without rule is an error instead of replicated

  /// The section `experts`: name → index into `rules`. Its rules apply only if experts are dealt.
  Matcher experts{{}};
  bool deals_experts = false;

  bool assumes_kv_heads = false;  ///< config.json does not count them: as many as query heads
  Quantisation quantisation;
  std::optional<Pipeline> pipeline;
  std::optional<Compose> compose;
};

/// Parses a rule file of any accepted form (docs/placement.md). Throws ConfigError.
RuleSet parse_rules(Document document, const Quantities& quantities);

/// Index of the rule for the tensor called `name`; none if no key matches. Sets `covering[index]`
/// for every rule with a key that matches.
std::optional<std::size_t> find_rule(const RuleSet& rules, std::string_view name,
                                     std::vector<bool>& covering);

/// The same rules with whole experts dealt to the ranks. Throws ConfigError if the rules do not say
/// which tensors are experts.
RuleSet with_dealt_experts(RuleSet rules);

/// Throws ConfigError if the rules have none.
const Pipeline& pipeline_of(const RuleSet& rules);

/// The same rules as the text of a file of the form `rule_file`.
std::string rule_file_text(const RuleSet& rules);

/// The `model_types` of a rule file; empty if it names none. Throws ConfigError.
std::vector<std::string> model_types_of(const Document& document);

}  // namespace safeshuffle::placement
