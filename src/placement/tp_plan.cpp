// TpPlan: choosing rules, and applying them to tensors.
#include <string>
#include <unordered_map>

#include "safeshuffle/error.hpp"
#include "safeshuffle/placement.hpp"

#include "core/embedded.hpp"
#include "placement/rule_set.hpp"

namespace safeshuffle {

struct TpPlan::Rules : placement::RuleSet {};

namespace {

using placement::Quantities;
using placement::RuleSet;

std::string origin_of(const core::EmbeddedFile& file) {
  return "built-in rules '" + std::string(file.stem) + "'";
}

/// Appends to `known` the types of every file looked at; null if none is for `type`.
const core::EmbeddedFile* find_built_in(const std::string& type, std::string& known) {
  for (const core::EmbeddedFile& file : core::embedded_tp_rules()) {
    for (const std::string& candidate : placement::model_types_of(file.text, origin_of(file))) {
      if (candidate == type) return &file;
      known += (known.empty() ? "" : ", ") + candidate;
    }
  }
  return nullptr;
}

const core::EmbeddedFile& built_in(const std::string& type) {
  std::string known;
  if (const core::EmbeddedFile* file = find_built_in(type, known)) return *file;
  const std::string problem = type.empty() ? "config.json has no model_type"
                                           : "no built-in rules for model_type '" + type + "'";
  throw ConfigError(problem + "; built-in are " + known +
                    "; give rules with --tp-plan FILE, or use --tp-plan replicate");
}

[[noreturn]] void fail_unmatched(const TensorInfo& tensor) {
  throw PlanError(ErrorRecord{.file = {},
                              .tensor = tensor.name,
                              .offset = std::nullopt,
                              .cause = "no rule is about it, and \"on_unmatched\" is \"error\""});
}

constexpr std::size_t no_rule = ~std::size_t{0};

std::size_t find_rule(const RuleSet& rules, std::string_view name) {
  return rules.matcher.find(name).value_or(no_rule);
}

Placement apply_rule(const RuleSet& rules, std::size_t index, const TensorInfo& tensor,
                     std::uint32_t world) {
  if (index != no_rule) return placement::apply(rules.rules[index], tensor, world);
  if (rules.strict) fail_unmatched(tensor);
  return {};
}

/// Writes each component of digits as `*` ("layers.17.fc1" → "layers.*.fc1") into `out`.
void write_family(std::string_view name, std::string& out) {
  out.clear();
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view component = name.substr(begin, end - begin);
    out += component.find_first_not_of("0123456789") == component.npos ? "*" : component;
    out += '.';
    begin = end + 1;
  }
}

/// Finds rules by name and remembers them for all tensors of the same family, that is, for those
/// whose names differ in layer and expert numbers only.
class RuleFinder {
 public:
  explicit RuleFinder(const RuleSet& rules) : rules_(rules) {}

  std::size_t operator()(std::string_view name) {
    if (!rules_.matcher.ignores_indices()) return find_rule(rules_, name);
    write_family(name, family_);
    const auto [entry, is_new] = known_.try_emplace(family_, no_rule);
    if (is_new) entry->second = find_rule(rules_, name);
    return entry->second;
  }

 private:
  const RuleSet& rules_;
  std::unordered_map<std::string, std::size_t> known_;
  std::string family_;
};

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
  const Quantities quantities(config_json);
  RuleSet rules = placement::parse_rules(rules_json, quantities, std::string(origin));
  return TpPlan(std::make_shared<const Rules>(Rules{std::move(rules)}));
}

TpPlan TpPlan::automatic(std::string_view config_json) {
  const core::EmbeddedFile& file = built_in(Quantities(config_json).model_type());
  return from_json(file.text, config_json, origin_of(file));
}

TpPlan TpPlan::replicate_all() {
  return TpPlan(std::make_shared<const Rules>());
}

Placement TpPlan::place(const TensorInfo& tensor, std::uint32_t world) const {
  check_world(world);
  return apply_rule(*rules_, find_rule(*rules_, tensor.name), tensor, world);
}

std::vector<Placement> TpPlan::place_all(const Catalog& catalog, std::uint32_t world) const {
  check_world(world);
  RuleFinder find(*rules_);
  std::vector<Placement> placements;
  placements.reserve(catalog.tensors().size());
  for (const TensorInfo& tensor : catalog.tensors()) {
    try {
      placements.push_back(apply_rule(*rules_, find(tensor.name), tensor, world));
    } catch (const PlanError& error) {
      rethrow_with_file(error, catalog.files()[tensor.file].path);
    }
  }
  return placements;
}

}  // namespace safeshuffle
