#include <nlohmann/json.hpp>

#include "placement/rule_set.hpp"

namespace safeshuffle::placement {
namespace {

using Json = nlohmann::ordered_json;

/// Those whose style does not already imply it.
Json optional_keys(const RuleSet& rules, const Json& plan) {
  Json keys = Json::array();
  for (const Key& key : rules.keys) {
    if (!key.fused.empty()) continue;
    const Style& style =
        parse_style(plan.at(key.name).get<std::string>(), key.path, rules.document);
    if (key.optional && !style.for_activations) keys.push_back(key.name);
  }
  return keys;
}

}  // namespace

std::string rule_file_text(const RuleSet& rules) {
  const std::string& text = rules.document.text;
  if (rules.form == Form::rule_file) return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  Json file;
  file["tp_plan"] = Json::parse(text);
  const Json optional = optional_keys(rules, file["tp_plan"]);
  if (!optional.empty()) file["optional"] = optional;
  return file.dump(2);
}

}  // namespace safeshuffle::placement
