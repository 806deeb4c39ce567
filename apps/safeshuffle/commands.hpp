// The subcommands. Each adds itself, with its options, to the parser; what it returns runs it once
// its options are parsed, and throws where it fails.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace safeshuffle::app {

using Command = std::function<void()>;

Command add_inspect(CLI::App& parser);
Command add_plan(CLI::App& parser);
Command add_load(CLI::App& parser);
Command add_make(CLI::App& parser);
Command add_rules(CLI::App& parser);

}  // namespace safeshuffle::app
