// The safeshuffle command: parses the command line, runs one subcommand, turns errors into exit
// codes.
#include <cstdlib>

#include <CLI/CLI.hpp>

#include "commands.hpp"
#include "help.hpp"
#include "interrupt.hpp"
#include "launch.hpp"
#include "output.hpp"

namespace safeshuffle::app {
namespace {

void run(int argc, char** argv) {
  CLI::App parser("Loads safetensors checkpoints into the devices of a tensor-parallel group.",
                  "safeshuffle");
  set_up_help(parser);
  parser.set_version_flag("--version", SAFESHUFFLE_VERSION, "Show the version");
  parser.require_subcommand(1);
  for (const auto add : {add_inspect, add_get, add_plan, add_load, add_make, add_models, add_probe,
                         add_rules, add_bench}) {
    add(parser);
  }
  refuse_missing_values(parser);
  try {
    parser.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    explain(parser, error);
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
  return code;
}
