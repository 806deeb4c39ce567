// safeshuffle rules: the placement rules, as a file to edit.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "safeshuffle/loader.hpp"

#include "commands.hpp"
#include "output.hpp"
#include "placement/built_in.hpp"
#include "shared_options.hpp"

namespace safeshuffle::app {
namespace {

using placement::BuiltIn;

struct RulesCommand {
  std::vector<std::string> paths;
  std::string tp_plan = "auto";
  std::string built_in;
  RemoteOptions remote;
};

bool is_called(const BuiltIn& rules, const std::string& name) {
  return rules.name == name || std::count(rules.model_types.begin(), rules.model_types.end(), name);
}

void print_built_in(const std::string& name) {
  for (const BuiltIn& rules : placement::built_in_rules()) {
    if (!is_called(rules, name)) continue;
    return print_result(rules.document.text);
  }
  throw ConfigError("no built-in rules '" + name +
                    "'; 'safeshuffle models' lists the available ones");
}

void print_rules_of(const RulesCommand& command) {
  const Checkpoint checkpoint = open_checkpoint(command.paths, command.remote);
  // The rules do not depend on the number of ranks, except that a single rank needs none, and nor
  // do as many as have saved a sharded state.
  const std::uint32_t some_ranks =
      2 + (checkpoint.sharded_state ? checkpoint.sharded_state->world : 0);
  Options options;
  options.tp_plan = command.tp_plan;
  const TpPlan plan = select_tp_plan(options, checkpoint, some_ranks);
  print_warnings(plan.warnings(checkpoint.catalog, some_ranks));
  print_result(plan.to_json() + "\n");
}

void rules(const RulesCommand& command) {
  if (!command.built_in.empty()) return print_built_in(command.built_in);
  if (command.paths.empty()) throw ConfigError("MODEL or --built-in is required");
  print_rules_of(command);
}

}  // namespace

void add_rules(CLI::App& parser) {
  const auto command = std::make_shared<RulesCommand>();
  CLI::App* sub = parser.add_subcommand(
      "rules", "Print the placement rules of a checkpoint, or built-in ones, to save and edit");
  CLI::Option* model = sub->add_option("MODEL", command->paths,
                                       "A directory, an .index.json, .safetensors files, or URLs");
  add_remote(*sub, command->remote);
  add_tp_plan(*sub, command->tp_plan)->needs(model);
  sub->add_option("--built-in", command->built_in,
                  "Print the built-in rules with this name, or for this model_type")
      ->type_name("NAME")
      ->excludes(model);
  sub->callback([command] { rules(*command); });
}

}  // namespace safeshuffle::app
