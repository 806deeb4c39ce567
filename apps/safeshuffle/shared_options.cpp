#include "shared_options.hpp"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "option.hpp"
#include "size.hpp"

namespace safeshuffle::app {
namespace {

const Choices<Assignment>& assignments() {
  static const Choices<Assignment> names{{"round-robin", Assignment::round_robin},
                                         {"balanced", Assignment::balanced},
                                         {"striped", Assignment::striped},
                                         {"auto", Assignment::automatic}};
  return names;
}

// One pattern each time it is given: what follows may be the MODEL.
void add_patterns(CLI::App& parser, const std::string& name, std::vector<std::string>& patterns,
                  const std::string& help) {
  parser.add_option(name, patterns, help)->type_name("GLOB")->allow_extra_args(false);
}

}  // namespace

void add_dtype(CLI::App& parser, DTypePolicy& dtype, const std::string& help) {
  add_choice<DTypePolicy>(parser, "--dtype", "TYPE", dtype,
                          {{"keep", DTypePolicy::keep},
                           {"f16", DTypePolicy::f16},
                           {"bf16", DTypePolicy::bf16},
                           {"f32", DTypePolicy::f32}},
                          help);
}

CLI::Option* add_tp_plan(CLI::App& parser, std::string& tp_plan) {
  return parser
      .add_option("--tp-plan", tp_plan,
                  "Placement rules: auto (by config.json), replicate, or a rule file")
      ->type_name("RULES")
      ->capture_default_str();
}

void add_plan_options(CLI::App& parser, Options& options) {
  add_tp_plan(parser, options.tp_plan);
  add_patterns(parser, "--only", options.selection.only,
               "Load only tensors whose names match, such as 'model.layers.0.*'; repeatable");
  add_patterns(parser, "--skip", options.selection.skip,
               "Leave out tensors whose names match; repeatable");
  add_dtype(parser, options.plan.dtype, "Convert F16, BF16 and F32 tensors");
  add_choice(parser, "--assign", "MODE", options.plan.assignment, assignments(),
             "Which rank reads which files");
  add_size(parser, "--window", options.plan.window, "File bytes that a rank reads per wave",
           core::smallest_window)
      ->default_str(default_text(&core::Defaults::window));
  add_size(parser, "--memory-budget", options.plan.memory_budget,
           "Maximum device memory per rank; the window shrinks to fit")
      ->default_str("no limit");
}

void add_progress(CLI::App& parser, ProgressStyle& style) {
  add_choice<ProgressStyle>(parser, "--progress", "STYLE", style,
                            {{"auto", ProgressStyle::automatic},
                             {"none", ProgressStyle::none},
                             {"json", ProgressStyle::json}},
                            "Format of progress and results");
}

std::string default_text(std::uint64_t core::Defaults::*bytes) {
  return fmt::format("{}, on GPUs {}", format_binary_size(core::host_defaults.*bytes),
                     format_binary_size(core::gpu_defaults.*bytes));
}

std::string_view name(Assignment assignment) {
  return name_of(assignments(), assignment);
}

}  // namespace safeshuffle::app
