// TpPlan: choosing rules, and applying them to tensors.
#include <string>

#include "safeshuffle/error.hpp"
#include "safeshuffle/placement.hpp"

#include "core/embedded.hpp"
#include "placement/rule_set.hpp"

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

Placement place_by(const RuleSet& rules, const TensorInfo& tensor, std::uint32_t world) {
  if (const auto index = rules.matcher.find(tensor.name)) {
    return placement::apply(rules.rules[*index], tensor, world);
  }
  if (rules.strict) fail_unmatched(tensor);
  return {};
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
  const placement::Document document{std::string(origin), std::string(rules_json)};
  RuleSet rules = placement::parse_rules(document, Quantities(config_json));
  return TpPlan(std::make_shared<const Rules>(Rules{std::move(rules)}));
}

TpPlan TpPlan::automatic(std::string_view config_json) {
  const Quantities quantities(config_json);
  RuleSet rules =
      placement::parse_rules(document_of(built_in(quantities.model_type())), quantities);
  return TpPlan(std::make_shared<const Rules>(Rules{std::move(rules)}));
}

TpPlan TpPlan::replicate_all() {
  return TpPlan(std::make_shared<const Rules>());
}

Placement TpPlan::place(const TensorInfo& tensor, std::uint32_t world) const {
  check_world(world);
  return place_by(*rules_, tensor, world);
}

std::vector<Placement> TpPlan::place_all(const Catalog& catalog, std::uint32_t world) const {
  check_world(world);
  std::vector<Placement> placements;
  placements.reserve(catalog.tensors().size());
  for (const TensorInfo& tensor : catalog.tensors()) {
    try {
      placements.push_back(place_by(*rules_, tensor, world));
    } catch (const PlanError& error) {
      rethrow_with_file(error, catalog.files()[tensor.file].path);
    }
  }
  return placements;
}

}  // namespace safeshuffle
