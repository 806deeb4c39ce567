// safeshuffle models: what has built-in rules.
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "output.hpp"
#include "placement/built_in.hpp"
#include "placement/quantised.hpp"
#include "table.hpp"

namespace safeshuffle::app {
namespace {

constexpr std::size_t widest_list = 90;

/// One row per line of types.
void add_types(Table& table, std::string name, const std::vector<std::string>& types) {
  std::string line;
  for (const std::string& type : types) {
    if (line.size() + type.size() > widest_list) {
      table.add({std::exchange(name, ""), std::exchange(line, "")});
    }
    line += type + (&type == &types.back() ? "" : ", ");
  }
  table.add({name, line});
}

void models() {
  Table table({{"rules", Align::left}, {"model_type", Align::left}});
  for (const placement::BuiltIn& rules : placement::built_in_rules()) {
    add_types(table, rules.name, rules.model_types);
  }
  print_result(
      fmt::format("{}\nquantised layers: {}\nto print rules: safeshuffle rules --built-in "
                  "NAME\n",
                  table.text(), fmt::join(placement::quantisation_methods(), ", ")));
}

}  // namespace

void add_models(CLI::App& parser) {
  parser
      .add_subcommand("models",
                      "List the model types and quantisation methods that several ranks can load")
      ->callback(models);
}

}  // namespace safeshuffle::app
