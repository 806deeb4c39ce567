// The machine that a prediction is for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>

#include "safeshuffle/options.hpp"
#include "safeshuffle/plan.hpp"
#include "safeshuffle/prediction.hpp"

namespace safeshuffle::app {

/// What the page cache has of the files.
enum class CacheState : std::uint8_t { now, cold, warm };

/// Values of --device, --machine, --nodes and --cache.
struct MachineOptions {
  DeviceKind device = DeviceKind::host;
  std::string machine;      ///< empty: this one
  std::uint32_t nodes = 0;  ///< 0: as make_cluster
  CacheState cache = CacheState::now;
};

/// Adds these options.
void add_machine_options(CLI::App& parser, MachineOptions& options);

/// A plan, and for whom.
struct OnCluster {
  Plan plan;
  Cluster cluster;
  Site site;                          ///< what the plan was made by
  std::vector<std::string> warnings;  ///< about the checkpoint and the plan
  std::vector<TpPlan::Whole> whole;   ///< by the rules, on each of several ranks
};

/// Plans a load of the checkpoint at `paths` by the costs of the selected machine: a built-in one,
/// or that of a file, which may be a probe's. Without any, this machine: as a load with as many
/// ranks on it does, by the probe that was kept of it; without a probe, and on GPUs, by defaults.
/// Throws ConfigError, or as planning does.
OnCluster plan_on_cluster(const std::vector<std::string>& paths, std::uint32_t world,
                          const MachineOptions& machine, const Options& options);

/// "on 2 nodes of 8xh100 (…), 0 % of the files in the page cache".
std::string text_of(const Cluster& cluster);

/// Name, value and source of each.
nlohmann::ordered_json assumptions_json(const MachineModel& machine);

}  // namespace safeshuffle::app
