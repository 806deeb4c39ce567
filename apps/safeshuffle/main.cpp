// The safeshuffle command: parses the command line, runs one subcommand, turns errors into exit
// codes.
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "commands.hpp"
#include "empty_values.hpp"
#include "exit.hpp"
#include "help.hpp"
#include "launch.hpp"

namespace safeshuffle::app {
namespace {

using Commands = std::vector<std::pair<const char*, Command>>;

// Help and errors of the parser, from rank 0 only. All ranks were given the same command line.
int explain(const CLI::App& parser, const CLI::ParseError& error) {
  std::ostringstream out;
  std::ostringstream err;
  const int code = parser.exit(error, out, err);
  if (launched_rank() == 0) {
    std::cout << out.str() << std::flush;
    std::cerr << err.str();
  }
  return code == 0 ? EXIT_SUCCESS : usage_error;
}

int execute(const CLI::App& parser, const Commands& commands) {
  try {
    for (const auto& [name, command] : commands) {
      if (parser.got_subcommand(name)) command();
    }
    return EXIT_SUCCESS;
  } catch (...) {
    return report_failure();
  }
}

int run(int argc, char** argv) {
  CLI::App parser("Loads safetensors checkpoints into the devices of a tensor-parallel group.",
                  "safeshuffle");
  set_up_help(parser);
  parser.set_version_flag("--version", SAFESHUFFLE_VERSION, "Show the version");
  parser.require_subcommand(1);
  const Commands commands{{"inspect", add_inspect(parser)},
                          {"plan", add_plan(parser)},
                          {"load", add_load(parser)},
                          {"make", add_make(parser)}};
  refuse_empty_values(parser);
  try {
    parser.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return explain(parser, error);
  }
  return execute(parser, commands);
}

}  // namespace
}  // namespace safeshuffle::app

int main(int argc, char** argv) {
  const int code = safeshuffle::app::run(argc, argv);
  safeshuffle::app::leave_group(code != EXIT_SUCCESS);
  safeshuffle::app::end_at_once_if_needed(code);
  return code;
}
