// The machine that a plan is for.
#pragma once

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "safeshuffle/loader.hpp"
#include "safeshuffle/options.hpp"
#include "safeshuffle/prediction.hpp"

namespace safeshuffle::app {

/// What the page cache has of the files.
enum class CacheState : std::uint8_t { now, cold, warm };

/// Values of --device, --machine, --nodes and --cache.
struct MachineOptions {
  DeviceKind device = DeviceKind::host;
  std::string machine;      ///< empty: this one
  std::uint32_t nodes = 0;  ///< 0: as site_on
  CacheState cache = CacheState::now;
};

/// Adds these options.
void add_machine_options(CLI::App& parser, MachineOptions& options);

/// A machine, and the place of a load on it.
struct Place {
  MachineModel machine;
  Site site;
};

/// Of a load of the checkpoint, found at `path`, with `world` ranks on the selected machine: a
/// built-in one, or that of a file, which may be a probe's. Without any, this machine: as a load
/// with as many ranks on it does, by the probe that was kept of it; without a probe, and on GPUs,
/// by defaults. Throws ConfigError.
Place select_place(const MachineOptions& options, const Checkpoint& checkpoint,
                   const std::string& path, std::uint32_t world);

}  // namespace safeshuffle::app
