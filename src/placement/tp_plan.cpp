// TpPlan: selects rules and applies them to tensors.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "safeshuffle/error.hpp"
#include "safeshuffle/placement.hpp"
#include "safeshuffle/target.hpp"

#include "core/text.hpp"
#include "format/foreign_content.hpp"
#include "placement/built_in.hpp"
#include "placement/rule_set.hpp"
#include "placement/structure.hpp"
#include "placement/unmatched.hpp"

namespace safeshuffle {

struct TpPlan::Rules : placement::RuleSet {};

namespace {

using placement::BuiltIn;
using placement::QuantisedLayers;
using placement::Quantities;
using placement::RuleSet;

/// For the outermost of the types that has any.
std::optional<placement::Document> built_in_for(const Quantities& quantities) {
  const std::vector<BuiltIn> all = placement::built_in_rules();
  for (const std::string& type : quantities.model_types()) {
    for (const BuiltIn& rules : all) {
      const std::vector<std::string>& types = rules.model_types;
      if (std::find(types.begin(), types.end(), type) != types.end()) return rules.document;
    }
  }
  return std::nullopt;
}

/// Why a config.json selects no built-in rules.
std::string why_none(const Quantities& quantities, std::string_view config_json) {
  if (config_json.empty()) {
    return "config.json, which selects the built-in rules, is missing or empty (copy the model's "
           "next to its files)";
  }
  if (!quantities.model_type().empty()) {
    return "no built-in rules for model_type '" + quantities.model_type() +
           "' ('safeshuffle models' lists those that have)";
  }
  const std::string foreign = format::foreign_content(config_json);
  return foreign.empty() ? "config.json has no model_type" : "config.json: " + foreign;
}

constexpr const char* ways_out = "pass a rule file, or \"replicate\", as tp_plan (--tp-plan)";

/// How the nearest built-in rules differ from what a checkpoint has.
std::string describe_nearest(const std::vector<placement::Structure>& ranked) {
  const placement::Structure& nearest = ranked.front();
  if (placement::fits(nearest)) {
    return "the tensors have the names of both '" + nearest.name + "' and '" + ranked[1].name +
           "', which cut them otherwise";
  }
  return "the nearest, '" + nearest.name + "', " +
         (nearest.unknown.empty() ? "requires names that the checkpoint lacks"
                                  : "does not know " + core::enumerate(nearest.unknown));
}

/// Built-in rules for a type that has none: those whose structure the checkpoint has.
RuleSet infer(const Quantities& quantities, std::string_view config_json, const Catalog& catalog) {
  const std::string why = why_none(quantities, config_json);
  if (quantities.model_type().empty()) throw ConfigError(why + "; " + ways_out);
  std::vector<placement::Structure> ranked = placement::rank_structures(catalog, quantities);
  if (ranked.empty() || ranked.front().known < ranked.front().unknown.size()) {
    throw ConfigError(why + ", and none is near; " + ways_out);
  }
  const auto fits_too = [&](const placement::Structure& other) {
    return placement::fits(other) && other.rules.extended == ranked.front().rules.extended;
  };
  if (!placement::fits(ranked.front()) || (ranked.size() > 1 && fits_too(ranked[1]))) {
    const std::string& name = ranked.front().name;
    throw ConfigError(why + "; " + describe_nearest(ranked) +
                      "; to start from its rules: " + "'safeshuffle rules --built-in " + name +
                      " > rules.json', then " + "'--tp-plan rules.json'; or " + ways_out);
  }
  RuleSet rules = std::move(ranked.front().rules);
  rules.inferred = true;
  rules.notes.push_back(why + ": all tensors have the names of '" + ranked.front().name +
                        "', whose rules apply");
  return rules;
}

[[noreturn]] void fail_unmatched(const TensorInfo& tensor) {
  throw PlanError(ErrorRecord{.tensor = tensor.name,
                              .cause = "no rule matches it, and \"on_unmatched\" is \"error\""});
}

/// Whether a rule for a linear layer may not know how this tensor of it lies.
bool is_of_unknown_form(const RuleSet& rules, const TensorInfo& tensor) {
  const std::string_view leaf = std::string_view(tensor.name).substr(tensor.name.rfind('.') + 1);
  if (leaf == "weight" || leaf == "bias" || tensor.shape.empty()) return false;
  return rules.quantisation.is_given || placement::has_quantised_name(tensor);
}

/// Such as a scale of the whole layer.
bool is_scalar(const TensorInfo& tensor) {
  return std::ranges::all_of(tensor.shape, [](std::uint64_t extent) { return extent == 1; });
}

[[noreturn]] void fail_unknown_form(const placement::Key& key, const std::string& method,
                                    const TensorInfo& tensor) {
  const std::string stored = method.empty() ? "a method of quantisation stores it, that"
                                            : "it is of the quantisation '" + method + "', that";
  throw PlanError(ErrorRecord{
      .tensor = tensor.name,
      .cause = "\"" + key.name +
               "\" splits weights and biases, and does not say how this tensor is laid out; if " +
               stored +
               " is not supported ('safeshuffle models'): pass \"replicate\" as tp_plan "
               "(--tp-plan), or a rule file with a key that ends in the tensor's own name for each "
               "kind of tensor"});
}

/// A built-in rule is for a linear layer itself, and so not for an adapter in its place.
void check_depth(const RuleSet& rules, const placement::Key& key, const TensorInfo& tensor) {
  if (!rules.built_in) return;
  const std::string_view below = rules.matcher.below(key.name, tensor.name);
  if (below.find('.') == std::string_view::npos) return;
  throw PlanError(ErrorRecord{
      .tensor = tensor.name,
      .cause = "\"" + key.name + "\" splits a layer, and has no rule for the module '" +
               std::string(below.substr(0, below.find('.'))) +
               "' inside it; if that is an adapter, merge it into the layer, or pass a rule file "
               "(--tp-plan) with a key for it"});
}

/// A key for a module also covers what a quantisation method stores there, which lies otherwise. A
/// key that names the tensor itself is taken at its word.
Placement apply_cut(const RuleSet& rules, std::size_t index, const TensorInfo& tensor,
                    std::uint32_t world, const QuantisedLayers& layers) {
  const placement::Rule& rule = rules.rules[index];
  const auto& cut = std::get<placement::CutRule>(rule);
  const placement::Key& key = rules.keys[index];
  if (world > 1) check_depth(rules, key, tensor);
  const bool is_quantised = layers.has(tensor);
  const bool is_unknown = is_of_unknown_form(rules, tensor);
  if (world > 1 && (is_quantised || is_unknown) &&
      !rules.matcher.below(key.name, tensor.name).empty()) {
    if (!is_quantised && is_scalar(tensor)) return {};
    if (!is_quantised) fail_unknown_form(key, rules.quantisation.method, tensor);
    return placement::apply(cut, tensor, layers.form_of(tensor), world);
  }
  Placement placement = placement::apply(rule, tensor, {}, world);
  const std::uint64_t together = layers.rows_together(tensor);
  if (together == 1) return placement;
  return placement::keep_together(std::move(placement), tensor, together, world);
}

Placement apply_rule(const RuleSet& rules, std::size_t index, const TensorInfo& tensor,
                     std::uint32_t world, const QuantisedLayers& layers) {
  const placement::Rule& rule = rules.rules[index];
  if (std::holds_alternative<placement::CutRule>(rule)) {
    return apply_cut(rules, index, tensor, world, layers);
  }
  std::string_view below;  // only dealing needs it, and finding it takes time
  if (std::holds_alternative<placement::DealRule>(rule)) {
    below = rules.matcher.below(rules.keys[index].name, tensor.name);
  }
  return placement::apply(rule, tensor, below, world);
}

/// The index of the rule for a tensor, if there is one.
using Choice = std::optional<std::size_t>;

Placement place_by(const RuleSet& rules, Choice choice, const TensorInfo& tensor,
                   std::uint32_t world, const QuantisedLayers& layers) {
  if (choice) return apply_rule(rules, *choice, tensor, world, layers);
  if (rules.strict) fail_unmatched(tensor);
  return {};
}

/// By tensor. Throws ConfigError if a key matches none of the tensors of a whole checkpoint.
std::vector<Choice> choose_rules(const RuleSet& rules, const Catalog& catalog,
                                 TpPlan::Extent extent) {
  std::vector<Choice> choices;
  choices.reserve(catalog.tensors().size());
  std::vector<bool> covering(rules.rules.size());
  for (const TensorInfo& tensor : catalog.tensors()) {
    choices.push_back(placement::find_rule(rules, tensor.name, covering));
  }
  if (extent == TpPlan::Extent::whole) placement::check_keys(rules, catalog, covering);
  return choices;
}

/// Empty if it is little; built-in rules should know everything.
std::string unsplit_warning(const std::map<std::string, std::uint64_t>& whole,
                            std::uint64_t all_bytes, bool built_in) {
  std::uint64_t bytes = 0;
  for (const auto& [name, share] : whole) bytes += share;
  if (bytes <= (built_in ? 0 : all_bytes / 4)) return {};
  const auto most =
      std::ranges::max_element(whole, {}, [](const auto& entry) { return entry.second; });
  return "whole on every rank, because no rule matches: weights of " + std::to_string(bytes) +
         " of " + std::to_string(all_bytes) + " bytes, of which '" + most->first + "' has " +
         std::to_string(most->second);
}

/// Without a count of KV heads, there are taken to be as many as query heads.
void check_kv_heads(const Catalog& catalog) {
  constexpr std::string_view key = ".self_attn.k_proj.";
  constexpr std::string_view query = ".self_attn.q_proj.";
  for (const TensorInfo& tensor : catalog.tensors()) {
    const std::size_t at = tensor.name.rfind(key);
    if (at == std::string::npos) continue;
    std::string name = tensor.name;
    const TensorInfo* other = catalog.find(name.replace(at, key.size(), query));
    if (other == nullptr || other->shape == tensor.shape) continue;
    throw ConfigError(ErrorRecord{
        .tensor = tensor.name,
        .cause = "config.json does not give the number of KV heads (num_key_value_heads), which "
                 "are fewer than query heads: their projections differ in shape"});
  }
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
  const auto document = built_in_for(quantities);
  if (!document) throw ConfigError(why_none(quantities, config_json) + "; " + ways_out);
  RuleSet rules = placement::parse_rules(*document, quantities);
  rules.built_in = true;
  return TpPlan(std::make_shared<const Rules>(Rules{std::move(rules)}));
}

TpPlan TpPlan::automatic(std::string_view config_json, const Catalog& catalog) {
  const Quantities quantities(config_json);
  const auto document = built_in_for(quantities);
  RuleSet rules = document ? placement::parse_rules(*document, quantities)
                           : infer(quantities, config_json, catalog);
  rules.built_in = true;
  return TpPlan(std::make_shared<const Rules>(Rules{std::move(rules)}));
}

TpPlan TpPlan::replicate_all() {
  RuleSet rules =
      placement::parse_rules({"replicate", R"({"tp_plan": {}})"}, Quantities(std::string_view()));
  rules.is_replicate = true;
  return TpPlan(std::make_shared<const Rules>(Rules{std::move(rules)}));
}

TpPlan TpPlan::deal_experts() const {
  RuleSet rules = placement::with_dealt_experts(*rules_);
  return TpPlan(std::make_shared<const Rules>(Rules{std::move(rules)}));
}

const placement::RuleSet& TpPlan::rules() const noexcept {
  return *rules_;
}

std::string TpPlan::to_json() const {
  return placement::rule_file_text(*rules_);
}

Placement TpPlan::place(const TensorInfo& tensor, std::uint32_t world) const {
  check_world(world);
  std::vector<bool> covering(rules_->rules.size());
  return place_by(*rules_, placement::find_rule(*rules_, tensor.name, covering), tensor, world, {});
}

std::vector<Placement> TpPlan::place_all(const Catalog& catalog, std::uint32_t world,
                                         const std::vector<bool>& selected, Extent extent) const {
  check_world(world);
  const std::vector<Choice> choices = choose_rules(*rules_, catalog, extent);
  if (world > 1 && rules_->built_in && rules_->assumes_kv_heads) check_kv_heads(catalog);
  const QuantisedLayers layers(catalog, rules_->quantisation);
  std::vector<Placement> placements;
  placements.reserve(choices.size());
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const TensorInfo& tensor = catalog.tensors()[i];
    if (!selected.empty() && !selected.at(i)) {
      placements.push_back({Placement::Kind::dropped, {}});
      continue;
    }
    try {
      placements.push_back(place_by(*rules_, choices[i], tensor, world, layers));
    } catch (const PlanError& error) {
      rethrow_with_file(error, catalog.files()[tensor.file].path);
    }
  }
  return placements;
}

std::vector<std::string> TpPlan::warnings(const Catalog& catalog, std::uint32_t world) const {
  std::vector<std::string> warnings = rules_->notes;
  std::vector<bool> covering(rules_->rules.size());
  std::map<std::string, std::uint64_t> whole;  // bytes, by name without numbers
  for (const TensorInfo& tensor : catalog.tensors()) {
    const Choice choice = placement::find_rule(*rules_, tensor.name, covering);
    if (!choice && tensor.shape.size() > 1) whole[placement::generic(tensor.name)] += tensor.bytes;
  }
  std::string unmatched = placement::unmatched_warning(*rules_, covering);
  if (!unmatched.empty()) warnings.push_back(std::move(unmatched));
  std::string unsplit = unsplit_warning(whole, catalog.tensor_bytes(), rules_->built_in);
  if (world > 1 && !rules_->is_replicate && !unsplit.empty())
    warnings.push_back(std::move(unsplit));
  return warnings;
}

std::vector<TpPlan::Whole> TpPlan::whole(const Catalog& catalog,
                                         const std::vector<Target>& targets) const {
  std::vector<bool> covering(rules_->rules.size());
  std::map<std::string, std::uint64_t> bytes;
  for (const Target& target : targets) {
    if (target.placement.kind != Placement::Kind::replicated) continue;
    const TensorInfo& tensor = catalog.tensors()[target.tensor];
    const Choice choice = placement::find_rule(*rules_, tensor.name, covering);
    bytes[choice ? rules_->keys[*choice].name : ""] += tensor.bytes;
  }
  std::vector<Whole> whole;
  for (const auto& [key, total] : bytes) whole.push_back({key, total});
  std::ranges::stable_sort(whole, std::greater{}, &Whole::bytes);
  return whole;
}

std::vector<bool> TpPlan::in_stage(const Catalog& catalog, PipelineStage stage,
                                   const std::vector<bool>& selected) const {
  return placement::in_stage(placement::pipeline_of(*rules_), rules_->document, catalog, stage,
                             selected);
}

}  // namespace safeshuffle
