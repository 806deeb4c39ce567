// The safeshuffle command: parses the command line, runs one subcommand, turns errors into exit
// codes.
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "commands.hpp"
#include "exit.hpp"
#include "launch.hpp"

namespace {

using namespace safeshuffle::app;

// Help and errors of the parser, from rank 0 only.
int explain(const CLI::App& parser, const CLI::ParseError& error) {
  std::ostringstream out;
  std::ostringstream err;
  const int code = parser.exit(error, out, err);
  if (launched_rank() == 0) {
    std::cout << out.str();
    std::cerr << err.str();
  }
  return code == 0 ? EXIT_SUCCESS : usage_error;
}

int run(int argc, char** argv) {
  CLI::App parser("Loads safetensors checkpoints into the devices of a tensor-parallel group.",
                  "safeshuffle");
  parser.set_version_flag("--version", SAFESHUFFLE_VERSION);
  parser.require_subcommand(1);
  const std::vector<std::pair<const char*, Command>> commands{{"inspect", add_inspect(parser)},
                                                              {"plan", add_plan(parser)},
                                                              {"load", add_load(parser)},
                                                              {"make", add_make(parser)}};
  try {
    parser.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return explain(parser, error);
  }
  try {
    for (const auto& [name, run] : commands) {
      if (parser.got_subcommand(name)) run();
    }
  } catch (...) {
    return report_failure();
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  const int code = run(argc, argv);
  leave_group(code != EXIT_SUCCESS);
  return code;
}
