// The safeshuffle command: parses the command line, runs one subcommand, turns errors into exit
// codes.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "commands.hpp"
#include "exit.hpp"
#include "launch.hpp"

namespace {

using namespace safeshuffle::app;

using Commands = std::vector<std::pair<const char*, Command>>;

// How long the other ranks let rank 0 speak, which is started at about the same time.
constexpr std::chrono::seconds rank_0_patience{1};

// Help and errors of the parser, from rank 0 only. The launcher kills the job when the first rank
// fails; this early there is no group yet in which to wait for rank 0.
int explain(const CLI::App& parser, const CLI::ParseError& error) {
  std::ostringstream out;
  std::ostringstream err;
  const int code = parser.exit(error, out, err) == 0 ? EXIT_SUCCESS : usage_error;
  if (launched_rank() == 0) {
    std::cout << out.str() << std::flush;
    std::cerr << err.str();
  } else if (code != EXIT_SUCCESS) {
    std::this_thread::sleep_for(rank_0_patience);
  }
  return code;
}

int run(const Commands& commands, const CLI::App& parser) {
  try {
    for (const auto& [name, command] : commands) {
      if (parser.got_subcommand(name)) command();
    }
  } catch (...) {
    return report_failure();
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App parser("Loads safetensors checkpoints into the devices of a tensor-parallel group.",
                  "safeshuffle");
  parser.set_version_flag("--version", SAFESHUFFLE_VERSION);
  parser.require_subcommand(1);
  const Commands commands{{"inspect", add_inspect(parser)},
                          {"plan", add_plan(parser)},
                          {"load", add_load(parser)},
                          {"make", add_make(parser)}};
  try {
    parser.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return explain(parser, error);
  }
  const int code = run(commands, parser);
  leave_group();
  return code;
}
