// The subcommands. Each function adds a subcommand with its options to the parser; the function
// that it returns runs the subcommand after parsing, and throws if it fails.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace safeshuffle::app {

using Command = std::function<void()>;

Command add_bench(CLI::App& parser);
Command add_inspect(CLI::App& parser);
Command add_plan(CLI::App& parser);
Command add_load(CLI::App& parser);
Command add_make(CLI::App& parser);
Command add_models(CLI::App& parser);
Command add_probe(CLI::App& parser);
Command add_rules(CLI::App& parser);

}  // namespace safeshuffle::app
