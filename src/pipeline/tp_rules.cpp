#include "pipeline/tp_rules.hpp"

#include <cstdint>

#include "safeshuffle/error.hpp"

#include "core/posix_file.hpp"
#include "pipeline/targets.hpp"
#include "placement/rule_set.hpp"

namespace safeshuffle::pipeline {
namespace {

constexpr std::uint64_t largest_rules = std::uint64_t{16} << 20;

bool is_builtin(std::string_view tp_plan) {
  return tp_plan == "auto" || tp_plan == "replicate";
}

bool is_text(std::string_view tp_plan) {
  return tp_plan.starts_with('{');
}

// A single rank keeps everything, whatever the model, so it needs no config.json, unless the rules
// say which tensors it loads.
bool needs_no_rules(const Options& options, const Checkpoint& checkpoint, std::uint32_t world) {
  return loads_as_saved(options, checkpoint, world) ||
         (world == 1 && !options.selection.stage && options.experts == ExpertPlacement::cut);
}

[[noreturn]] void fail_inferred(const TpPlan& rules) {
  throw FallbackError(ErrorRecord{.cause = "strict: " + rules.rules().notes.front()});
}

TpPlan choose_rules(const Options& options, std::string_view rules_json,
                    const Checkpoint& checkpoint, std::uint32_t world) {
  if (options.tp_plan == "auto" && !needs_no_rules(options, checkpoint, world)) {
    const TpPlan rules = TpPlan::automatic(checkpoint.config_json, checkpoint.catalog);
    if (options.strict && rules.rules().inferred) fail_inferred(rules);
    return rules;
  }
  if (is_builtin(options.tp_plan)) return TpPlan::replicate_all();
  return TpPlan::from_json(rules_json, checkpoint.config_json,
                           is_text(options.tp_plan) ? "the given rules" : options.tp_plan);
}

}  // namespace

std::string rules_path(std::string_view tp_plan) {
  return is_builtin(tp_plan) || is_text(tp_plan) ? std::string() : std::string(tp_plan);
}

std::string read_rules(std::string_view tp_plan) {
  if (is_text(tp_plan)) return std::string(tp_plan);
  const std::string path = rules_path(tp_plan);
  return path.empty() ? std::string() : core::read_text(path, largest_rules);
}

TpPlan make_tp_plan(const Options& options, std::string_view rules_json,
                    const Checkpoint& checkpoint, std::uint32_t world) {
  const std::uint32_t ranks = replica_size(world, options.plan);
  check_sharded_state(options, checkpoint, ranks);
  const TpPlan rules = choose_rules(options, rules_json, checkpoint, ranks);
  return options.experts == ExpertPlacement::parallel ? rules.deal_experts() : rules;
}

}  // namespace safeshuffle::pipeline
