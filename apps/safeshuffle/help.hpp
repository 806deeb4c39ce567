// What the parser prints and rejects: help, and errors in the command line.
#pragma once

#include <CLI/CLI.hpp>

namespace safeshuffle::app {

/// Makes `parser`, and the subcommands added to it later, print help in the project's form.
void set_up_help(CLI::App& parser);

/// Makes every option and argument of the subcommands that `parser` has so far reject a missing
/// value: an empty one, as a shell passes an unset variable, or one that begins with "--".
void refuse_missing_values(CLI::App& parser);

/// Prints what the command line requests, such as help, if this is rank 0. Throws ConfigError if
/// the command line is not valid.
void explain(const CLI::App& parser, const CLI::ParseError& error);

}  // namespace safeshuffle::app
