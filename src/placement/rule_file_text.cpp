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

Json as_rule_file(const RuleSet& rules, Json plan) {
  Json file;
  const Json optional = optional_keys(rules, plan);
  file["tp_plan"] = std::move(plan);
  if (!optional.empty()) file["optional"] = optional;
  return file;
}

Json pipeline_section(const Pipeline& pipeline) {
  Json section = Json::object();
  for (const auto& [field, role] : pipeline_fields) {
    for (const Pipeline::Module& module : pipeline.modules) {
      if (module.role == role) section[std::string(field)].push_back(module.key);
    }
  }
  return section;
}

Json from_model_config(const RuleSet& rules, const Json& config) {
  Json plan = Json::object();
  for (const char* field : {"base_model_tp_plan", "tp_plan"}) {
    if (config.contains(field) && config[field].is_object()) plan.update(config[field]);
  }
  Json file = as_rule_file(rules, std::move(plan));
  if (rules.pipeline) file["pipeline"] = pipeline_section(*rules.pipeline);
  if (config.contains("base_model_prefix")) file["base_model_prefix"] = config["base_model_prefix"];
  return file;
}

}  // namespace

std::string rule_file_text(const RuleSet& rules) {
  const std::string& text = rules.document.text;
  if (rules.form == Form::rule_file) return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  const Json json = Json::parse(text);
  return (rules.form == Form::bare_plan ? as_rule_file(rules, json)
                                        : from_model_config(rules, json))
      .dump(2);
}

}  // namespace safeshuffle::placement
