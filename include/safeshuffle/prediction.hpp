// How long a load takes on a machine that need not be there: predicted from a plan and from what
// the machine can do (docs/prediction.md). Pure and deterministic: no GPU, MPI or file access.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/costs.hpp"
#include "safeshuffle/device.hpp"
#include "safeshuffle/options.hpp"
#include "safeshuffle/plan.hpp"

namespace safeshuffle {

/// A number of a machine, and where it is from.
struct Assumption {
  std::string name;  ///< as in the JSON of machines
  double value = 0;
  std::string source;  ///< such as a data sheet, a paper or a measurement
};

/// What a machine of one or more equal nodes can do. Plain data.
struct MachineModel {
  std::string name;
  std::string description;
  DeviceKind device = DeviceKind::host;  ///< never `automatic`

  /// On GPUs: how many each node has. On the host: with how many ranks on each node the costs of
  /// "each rank" were measured; any other number shares the cores of a node.
  std::uint32_t ranks_per_node = 1;

  unsigned cores = 1;  ///< of a node, which its ranks share; on the host only

  Costs costs;

  /// Bytes per second that all ranks of a node together copy to their GPUs, and send to other
  /// nodes, or receive from them. 0: the former has no limit, the latter is not known.
  double host_to_device_node = 0;
  double network_node = 0;

  std::vector<Assumption> assumptions;  ///< all numbers above
};

/// The machine in a JSON text (docs/prediction.md). Throws ConfigError, which names `name` (usually
/// a path) as the file, and the field, or line and column, if it is not valid.
MachineModel machine_from_json(std::string_view json, const std::string& name);

/// The machines that are part of the library, by name.
std::vector<MachineModel> built_in_machines();

/// The place of a load by `world` ranks on `nodes` such nodes, equally many consecutive ranks on
/// each but the last, for planning. `nodes` 0: on GPUs as few as have enough, on the host 1.
/// `cached_share`: what part of the files is in the page cache of the node whose ranks read it, 0
/// to 1. What several ranks share counts for each by its part: so do cores on the host, and on
/// several nodes the network. Throws ConfigError if there are more nodes than ranks, more ranks
/// than GPUs, or several nodes without a known network.
Site site_on(const MachineModel& machine, std::uint32_t world, std::uint32_t nodes,
             double cached_share);

/// What each step takes by itself, and the whole, as Assignment::automatic estimates it: steps
/// overlap or follow one another as a whole, not wave by wave.
StepSeconds predict(const Plan& plan, const Site& site);

}  // namespace safeshuffle
