#include "placement/advice.hpp"

namespace safeshuffle::placement {

std::string how_to_allow_absence(const RuleSet& rules, const Key& key) {
  if (rules.built_in) {
    return "the model_type in config.json chose these rules; if they are not for this model, give "
           "a "
           "rule file, or \"replicate\", as tp_plan (--tp-plan)";
  }
  if (rules.form != Form::rule_file) {
    return "if it may be absent, write a rule file that says so: {\"tp_plan\": {...}, "
           "\"optional\": "
           "[\"" +
           key.name + "\"]}";
  }
  if (key.path.starts_with("rules"))
    return "if it may be absent, add \"optional\": true to the rule";
  return "if it may be absent, add it to the list \"optional\" of the file";
}

}  // namespace safeshuffle::placement
