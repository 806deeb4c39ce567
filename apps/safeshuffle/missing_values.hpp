// Options and paths without a value, such as `--report ""`, as a shell passes an unset variable, or
// `--report --trace FILE`.
#pragma once

#include <CLI/CLI.hpp>

namespace safeshuffle::app {

/// Makes every option and argument of the subcommands that `parser` has so far reject an empty
/// value, and one that begins with "--".
void refuse_missing_values(CLI::App& parser);

}  // namespace safeshuffle::app
