// The subcommands. Each function adds one, with its options, to the parser, which runs it after
// parsing; it throws if it fails.
#pragma once

#include <CLI/CLI.hpp>

namespace safeshuffle::app {

void add_bench(CLI::App& parser);
void add_get(CLI::App& parser);
void add_inspect(CLI::App& parser);
void add_plan(CLI::App& parser);
void add_load(CLI::App& parser);
void add_make(CLI::App& parser);
void add_models(CLI::App& parser);
void add_probe(CLI::App& parser);
void add_rules(CLI::App& parser);

}  // namespace safeshuffle::app
