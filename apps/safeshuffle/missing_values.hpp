// Options and paths without a value, such as `--report ""`, which a shell makes of an unset
// variable, or `--report --trace FILE`.
#pragma once

#include <CLI/CLI.hpp>

namespace safeshuffle::app {

/// Makes every option and argument of the subcommands that `parser` has so far refuse an empty
/// value, and one that begins with "--".
void refuse_missing_values(CLI::App& parser);

}  // namespace safeshuffle::app
