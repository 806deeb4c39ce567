#include "option_names.hpp"

#include <map>

#include "size.hpp"

namespace safeshuffle::app {
namespace {

const std::map<std::string, Assignment>& assignments() {
  static const std::map<std::string, Assignment> names{{"round-robin", Assignment::round_robin},
                                                       {"balanced", Assignment::balanced},
                                                       {"striped", Assignment::striped},
                                                       {"auto", Assignment::automatic}};
  return names;
}

const std::map<std::string, DTypePolicy>& dtypes() {
  static const std::map<std::string, DTypePolicy> names{{"keep", DTypePolicy::keep},
                                                        {"f16", DTypePolicy::f16},
                                                        {"bf16", DTypePolicy::bf16},
                                                        {"f32", DTypePolicy::f32}};
  return names;
}

}  // namespace

void add_dtype(CLI::App& parser, DTypePolicy& dtype, const std::string& help) {
  parser.add_option("--dtype", dtype, help)
      ->type_name("TYPE")
      ->transform(
          CLI::CheckedTransformer(dtypes(), CLI::ignore_case).description("keep, f16, bf16 or f32"))
      ->default_str("keep");
}

void add_plan_options(CLI::App& parser, Options& options) {
  parser
      .add_option("--tp-plan", options.tp_plan,
                  "Placement rules: auto (by config.json), replicate, or a rule file")
      ->type_name("RULES")
      ->capture_default_str();
  add_dtype(parser, options.plan.dtype, "Convert F16, BF16 and F32 tensors");
  parser.add_option("--assign", options.plan.assignment, "Which rank reads what")
      ->type_name("MODE")
      ->transform(CLI::CheckedTransformer(assignments(), CLI::ignore_case)
                      .description("round-robin, balanced, striped or auto"))
      ->default_str("round-robin");
  add_size(parser, "--window", options.plan.window, "File bytes per rank and wave")
      ->default_str("64MiB");
  add_size(parser, "--memory-budget", options.plan.memory_budget,
           "Most device memory per rank; the window shrinks to fit");
}

std::string_view name(Assignment assignment) {
  for (const auto& [text, value] : assignments()) {
    if (value == assignment) return text;
  }
  return "?";
}

}  // namespace safeshuffle::app
