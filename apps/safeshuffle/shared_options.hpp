// Options that several subcommands share, and the names of their values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "safeshuffle/device.hpp"
#include "safeshuffle/options.hpp"

#include "core/defaults.hpp"
#include "progress.hpp"

namespace safeshuffle::app {

/// More than any group has.
inline constexpr std::uint32_t most_ranks = 65536;

/// --header, --source, --tp-plan, --experts, --only, --skip, --pipeline-stage, --dtype,
/// --keep-dtype, --replicas, --assign, --order, --window, --memory-budget.
void add_plan_options(CLI::App& parser, Options& options);

/// --header, --source.
void add_remote(CLI::App& parser, RemoteOptions& remote);

/// --cache, --cache-size. `plan` has an option --cache of its own.
void add_cache(CLI::App& parser, RemoteOptions& remote);

/// --tp-plan.
CLI::Option* add_tp_plan(CLI::App& parser, std::string& tp_plan);

/// --dtype with the given help.
void add_dtype(CLI::App& parser, DTypePolicy& dtype, const std::string& help);

/// --device and --gpu; `help` says what the device is for.
void add_device(CLI::App& parser, Device& device, const std::string& help);

/// Throws ConfigError if --gpu is given for the host.
void check_device(const Device& device);

/// --timeout, of `least` seconds or more.
void add_timeout(CLI::App& parser, double& seconds, double least = 1);

/// --progress, without JSON.
void add_progress(CLI::App& parser, ProgressStyle& style);

/// "64 MiB, on GPUs 256 MiB": a default in bytes that depends on the device.
std::string default_text(std::uint64_t core::Defaults::*bytes);

}  // namespace safeshuffle::app
