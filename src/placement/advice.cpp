#include "placement/advice.hpp"

namespace safeshuffle::placement {
namespace {

bool is_rule(const Key& key) {
  return key.path.starts_with("rules[");
}

/// How to get the rules as a file that has fields to edit. It must not overwrite a file of the
/// user.
std::string how_to_save(const RuleSet& rules) {
  const std::string arguments =
      rules.built_in ? "MODEL > rules.json" : "MODEL --tp-plan " + rules.document.name;
  return "'safeshuffle rules " + arguments + "', or TpPlan::to_json";
}

}  // namespace

std::string how_to_allow_absence(const RuleSet& rules, const Key& key) {
  if (rules.built_in) {
    return "the model_type in config.json selected these rules; if they do not fit this model, "
           "pass a rule file, or \"replicate\", as tp_plan (--tp-plan); to start from these rules, "
           "save them (" +
           how_to_save(rules) + ")";
  }
  if (rules.form != Form::rule_file) {
    return "if it may be absent, save the plan as a rule file (" + how_to_save(rules) +
           "), list the key in \"optional\" there, and pass that file instead";
  }
  if (key.in_experts) return "correct or remove it in the section \"experts\"";
  if (is_rule(key)) return "if it may be absent, add \"optional\": true to the rule";
  if (key.path.starts_with("compose[")) {
    return "if it may be absent, add \"optional\": true to the entry";
  }
  return "if it may be absent, add it to the list \"optional\" of the file";
}

std::string how_to_add_section(const RuleSet& rules, const std::string& section) {
  const std::string example = "for example " + section;
  if (rules.is_replicate) {
    return "write a rule file, " + example +
           " beside \"tp_plan\": {}, and pass it as tp_plan (--tp-plan)";
  }
  if (rules.built_in || rules.form != Form::rule_file) {
    return "save the rules as a file (" + how_to_save(rules) + "), add " + example +
           " at its top, and pass it as tp_plan (--tp-plan)";
  }
  return "add " + example + " at the top of " + rules.document.name;
}

}  // namespace safeshuffle::placement
