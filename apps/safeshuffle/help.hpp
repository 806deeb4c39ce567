// What the parser prints: help, and what is wrong with a command line.
#pragma once

#include <CLI/CLI.hpp>

namespace safeshuffle::app {

/// Makes `parser`, and the subcommands added to it afterwards, print help in the project's form.
void set_up_help(CLI::App& parser);

}  // namespace safeshuffle::app
