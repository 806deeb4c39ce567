// What the parser prints: help, and what is wrong with a command line.
#pragma once

#include <CLI/CLI.hpp>

namespace safeshuffle::app {

/// Makes `parser`, and the subcommands added to it afterwards, print help in the project's form.
void set_up_help(CLI::App& parser);

/// Prints what the command line asks for, such as help, if this is rank 0. Throws ConfigError if
/// the command line is wrong.
void explain(const CLI::App& parser, const CLI::ParseError& error);

}  // namespace safeshuffle::app
