// The safeshuffle command: parses the command line, runs one subcommand, turns errors into exit
// codes.
#include <cstdlib>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "commands.hpp"
#include "exit.hpp"
#include "help.hpp"
#include "interrupt.hpp"
#include "launch.hpp"
#include "missing_values.hpp"
#include "output.hpp"

namespace safeshuffle::app {
namespace {

using Commands = std::vector<std::pair<const char*, Command>>;

void run(int argc, char** argv) {
  CLI::App parser("Loads safetensors checkpoints into the devices of a tensor-parallel group.",
                  "safeshuffle");
  set_up_help(parser);
  parser.set_version_flag("--version", SAFESHUFFLE_VERSION, "Show the version");
  parser.require_subcommand(1);
  const Commands commands{{"inspect", add_inspect(parser)}, {"plan", add_plan(parser)},
                          {"load", add_load(parser)},       {"make", add_make(parser)},
                          {"models", add_models(parser)},   {"probe", add_probe(parser)},
                          {"rules", add_rules(parser)},     {"bench", add_bench(parser)}};
  refuse_missing_values(parser);
  try {
    parser.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return explain(parser, error);
  }
  for (const auto& [name, command] : commands) {
    if (parser.got_subcommand(name)) command();
  }
}

int run_and_report(int argc, char** argv) try {
  run(argc, argv);
  return EXIT_SUCCESS;
} catch (...) {
  return report_failure();
}

}  // namespace
}  // namespace safeshuffle::app

int main(int argc, char** argv) {
  safeshuffle::app::prepare_streams();
  safeshuffle::app::clean_up_on_signals();
  const int code = safeshuffle::app::run_and_report(argc, argv);
  safeshuffle::app::leave_group(code);
  safeshuffle::app::end_at_once_if_needed(code);
  return code;
}
