#include "placement/rule_set.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "placement/json_object.hpp"
#include "placement/rule_parser.hpp"
#include "placement/strict_json.hpp"

namespace safeshuffle::placement {
namespace {

using nlohmann::json;

// Far above any model's; bounds the recursion over components.
constexpr std::ptrdiff_t max_components = 64;

const std::vector<std::string>& default_prefixes() {
  static const std::vector<std::string> prefixes{
      "model",          "transformer",          "gpt_neox",
      "language_model", "language_model.model", "model.language_model"};
  return prefixes;
}

/// A string or a list of strings; empty if absent.
std::vector<std::string> string_list(const JsonObject& file, std::string_view field) {
  const json* value = file.find(field);
  if (value == nullptr) return {};
  std::vector<std::string> list;
  for (const json& item : value->is_array() ? *value : json::array({*value})) {
    if (!item.is_string()) file.fail(field, "not a string or a list of strings");
    list.push_back(item.get<std::string>());
  }
  return list;
}

std::vector<std::string> parse_prefixes(const JsonObject& file) {
  return file.has("base_model_prefix") ? string_list(file, "base_model_prefix")
                                       : default_prefixes();
}

bool parse_strictness(const JsonObject& file) {
  if (!file.has("on_unmatched")) return false;
  const std::string word = file.text("on_unmatched");
  if (word != "replicate" && word != "error") {
    file.fail("on_unmatched", R"(not "replicate" or "error")");
  }
  return word == "error";
}

/// Fills a RuleSet. Rules are added before plans, because they win where both have the same key.
class Builder {
 public:
  Builder(const Quantities& quantities, bool uneven, const Document& document)
      : parser_(quantities, uneven), document_(document) {}

  void use_prefixes(std::vector<std::string> prefixes) {
    set_.matcher = Matcher(std::move(prefixes));
  }

  void add_rules(const json& list) {
    if (!list.is_array()) fail_config(document_, "rules", "not a list");
    for (std::size_t i = 0; i < list.size(); ++i) {
      const JsonObject entry(list[i], "rules[" + std::to_string(i) + "]", document_);
      const std::string key = entry.text("match");
      add(key, entry.path("match"), parser_.parse_entry(entry));
    }
    rule_count_ = set_.rules.size();
  }

  void add_plan(const JsonObject& plan) {
    for (const auto& item : plan.value().items()) {
      const std::string path = plan.path(item.key());
      add(item.key(), path, parser_.parse_word(plan.text(item.key()), path, document_));
    }
  }

  RuleSet finish(bool strict) {
    set_.strict = strict;
    return std::move(set_);
  }

 private:
  void add(const std::string& key, const std::string& path, Rule rule) {
    if (key.empty()) fail_config(document_, path, "empty");
    if (std::count(key.begin(), key.end(), '.') >= max_components) {
      fail_config(document_, path, "more than " + std::to_string(max_components) + " components");
    }
    const std::size_t index = set_.rules.size();
    const std::size_t standing = set_.matcher.add(key, index);
    if (standing == index) {
      set_.rules.push_back(std::move(rule));
    } else if (standing >= rule_count_) {
      fail_config(document_, path, "another entry is about the same tensors");
    }
  }

  RuleParser parser_;
  const Document& document_;
  RuleSet set_;
  std::size_t rule_count_ = 0;
};

RuleSet parse_rule_file(const JsonObject& file, const Quantities& quantities) {
  file.allow_only(
      {"tp_plan", "rules", "on_unmatched", "uneven", "base_model_prefix", "model_types"});
  Builder builder(quantities, file.flag("uneven", false), file.document());
  builder.use_prefixes(parse_prefixes(file));
  if (const json* rules = file.find("rules")) builder.add_rules(*rules);
  if (const json* plan = file.find("tp_plan"))
    builder.add_plan({*plan, "tp_plan", file.document()});
  return builder.finish(parse_strictness(file));
}

RuleSet parse_model_config(const JsonObject& file, const Quantities& quantities) {
  Builder builder(quantities, false, file.document());
  builder.use_prefixes(parse_prefixes(file));
  bool found = false;
  for (const char* field : {"base_model_tp_plan", "tp_plan"}) {
    const json* plan = file.find(field);
    if (plan == nullptr || plan->is_null()) continue;
    builder.add_plan({*plan, field, file.document()});
    found = true;
  }
  if (!found)
    file.fail("base_model_tp_plan", "missing: this config.json has no tensor-parallel plan");
  return builder.finish(false);
}

RuleSet parse_bare_plan(const JsonObject& file, const Quantities& quantities) {
  if (file.value().empty()) fail_config(file.document(), "", R"(neither "tp_plan" nor "rules")");
  Builder builder(quantities, false, file.document());
  builder.use_prefixes(default_prefixes());
  builder.add_plan(file);
  return builder.finish(false);
}

bool is_model_config(const JsonObject& file) {
  return file.has("base_model_tp_plan") || file.has("model_type") || file.has("architectures");
}

}  // namespace

RuleSet parse_rules(const Document& document, const Quantities& quantities) {
  const json root = parse_strict(document);
  const JsonObject file(root, "", document);
  if (is_model_config(file)) return parse_model_config(file, quantities);
  if (file.has("tp_plan") || file.has("rules")) return parse_rule_file(file, quantities);
  return parse_bare_plan(file, quantities);
}

std::vector<std::string> model_types_of(const Document& document) {
  const json root = parse_strict(document);
  return string_list({root, "", document}, "model_types");
}

}  // namespace safeshuffle::placement
