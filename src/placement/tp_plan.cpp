// TpPlan: choosing rules, and applying them to tensors.
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "safeshuffle/error.hpp"
#include "safeshuffle/placement.hpp"

#include "core/embedded.hpp"
#include "placement/rule_set.hpp"
#include "placement/unmatched.hpp"

namespace safeshuffle {

struct TpPlan::Rules : placement::RuleSet {};

namespace {

using placement::Quantities;
using placement::RuleSet;

placement::Document document_of(const core::EmbeddedFile& file) {
  return {"built-in rules '" + std::string(file.stem) + "'", std::string(file.text)};
}

/// Appends to `known` the types of every file looked at; null if none is for `type`.
const core::EmbeddedFile* find_built_in(const std::string& type, std::string& known) {
  for (const core::EmbeddedFile& file : core::embedded_tp_rules()) {
    for (const std::string& candidate : placement::model_types_of(document_of(file))) {
      if (candidate == type) return &file;
      known += (known.empty() ? "" : ", ") + candidate;
    }
  }
  return nullptr;
}

core::EmbeddedFile built_in(const std::string& type) {
  std::string known;
  if (const core::EmbeddedFile* file = find_built_in(type, known)) return *file;
  const std::string problem = type.empty() ? "config.json has no model_type"
                                           : "no built-in rules for model_type '" + type + "'";
  throw ConfigError(problem + "; built-in are " + known +
                    "; give a rule file, or \"replicate\", as tp_plan (--tp-plan)");
}

[[noreturn]] void fail_unmatched(const TensorInfo& tensor) {
  throw PlanError(ErrorRecord{.tensor = tensor.name,
                              .cause = "no rule matches it, and \"on_unmatched\" is \"error\""});
}

/// The index of the rule for a tensor, if there is one.
using Choice = std::optional<std::size_t>;

Placement place_by(const RuleSet& rules, Choice choice, const TensorInfo& tensor,
                   std::uint32_t world) {
  if (choice) return placement::apply(rules.rules[*choice], tensor, world);
  if (rules.strict) fail_unmatched(tensor);
  return {};
}

/// By tensor. Throws ConfigError if a key is about none of them.
std::vector<Choice> choose_rules(const RuleSet& rules, const Catalog& catalog) {
  std::vector<Choice> choices;
  choices.reserve(catalog.tensors().size());
  std::vector<bool> covering(rules.rules.size());
  for (const TensorInfo& tensor : catalog.tensors()) {
    choices.push_back(rules.matcher.find(tensor.name, covering));
  }
  placement::check_keys(rules, catalog, covering);
  return choices;
}

void check_world(std::uint32_t world) {
  if (world == 0) throw PlanError("a group has at least one rank");
}

[[noreturn]] void rethrow_with_file(const PlanError& error, const std::string& path) {
  ErrorRecord record = error.record();
  record.file = path;
  throw PlanError(std::move(record));
}

}  // namespace

TpPlan::TpPlan(std::shared_ptr<const Rules> rules) : rules_(std::move(rules)) {}

TpPlan TpPlan::from_json(std::string_view rules_json, std::string_view config_json,
                         std::string_view origin) {
  RuleSet rules = placement::parse_rules({std::string(origin), std::string(rules_json)},
                                         Quantities(config_json));
  return TpPlan(std::make_shared<const Rules>(Rules{std::move(rules)}));
}

TpPlan TpPlan::automatic(std::string_view config_json) {
  const Quantities quantities(config_json);
  RuleSet rules =
      placement::parse_rules(document_of(built_in(quantities.model_type())), quantities);
  rules.built_in = true;
  return TpPlan(std::make_shared<const Rules>(Rules{std::move(rules)}));
}

TpPlan TpPlan::replicate_all() {
  return TpPlan(std::make_shared<const Rules>());
}

Placement TpPlan::place(const TensorInfo& tensor, std::uint32_t world) const {
  check_world(world);
  std::vector<bool> covering(rules_->rules.size());
  return place_by(*rules_, rules_->matcher.find(tensor.name, covering), tensor, world);
}

std::vector<Placement> TpPlan::place_all(const Catalog& catalog, std::uint32_t world) const {
  check_world(world);
  const std::vector<Choice> choices = choose_rules(*rules_, catalog);
  std::vector<Placement> placements;
  placements.reserve(choices.size());
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const TensorInfo& tensor = catalog.tensors()[i];
    try {
      placements.push_back(place_by(*rules_, choices[i], tensor, world));
    } catch (const PlanError& error) {
      rethrow_with_file(error, catalog.files()[tensor.file].path);
    }
  }
  return placements;
}

}  // namespace safeshuffle
