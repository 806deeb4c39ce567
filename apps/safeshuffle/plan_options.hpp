// Options that several subcommands share, and the names of their values.
#pragma once

#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "safeshuffle/options.hpp"

namespace safeshuffle::app {

/// --tp-plan, --dtype, --assign, --window, --memory-budget.
void add_plan_options(CLI::App& parser, Options& options);

/// --tp-plan.
CLI::Option* add_tp_plan(CLI::App& parser, std::string& tp_plan);

/// --dtype with the given help.
void add_dtype(CLI::App& parser, DTypePolicy& dtype, const std::string& help);

/// As --assign takes it.
std::string_view name(Assignment assignment);

}  // namespace safeshuffle::app
