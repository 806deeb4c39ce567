// How long a load takes on a machine that need not be there: predicted from a plan and from what
// the machine can do (docs/prediction.md). Pure and deterministic: no GPU, MPI or file access.
#pragma once

#include <cstddef>
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

  unsigned cores = 1;  ///< of a node: ranks open files with them and, on the host, do all else

  Costs costs;

  /// Bytes per second that all ranks of a node together copy to their GPUs, and send to other
  /// nodes, or receive from them. 0: the former has no limit, the latter is not known.
  double host_to_device_node = 0;
  double network_node = 0;

  std::vector<Assumption> assumptions;  ///< all numbers above
};

/// The machine in a JSON text (docs/prediction.md). Throws ConfigError, which names `name` (usually
/// a path) as the file, and the field, line and column, if it is not valid.
MachineModel machine_from_json(std::string_view json, const std::string& name);

/// The machines that are part of the library, by name.
std::vector<MachineModel> built_in_machines();

/// Who loads: ranks on nodes of a machine, equally many consecutive ones on each but the last.
struct Cluster {
  MachineModel machine;
  std::uint32_t world = 1;
  std::uint32_t nodes = 1;

  /// What part of the files is in the page cache of the node whose ranks read it, 0 to 1.
  double cached_share = 0;

  /// Ranks of every node but the last.
  std::uint32_t ranks_per_node() const noexcept { return (world + nodes - 1) / nodes; }
};

/// `nodes` 0: on GPUs as few as have enough, on the host 1. Throws ConfigError if there are more
/// nodes than ranks, more ranks than GPUs, or several nodes without a known network.
Cluster make_cluster(MachineModel machine, std::uint32_t world, std::uint32_t nodes,
                     double cached_share);

/// The place of a load on such a cluster, for planning. What several ranks share counts for each by
/// its part: so do cores on the host, and on several nodes the network.
Site site_of(const Cluster& cluster);

/// What each step takes by itself, and the whole, as Assignment::automatic estimates it: steps
/// overlap or follow one another as a whole, not wave by wave.
StepSeconds predict(const Plan& plan, const Site& site);

/// What a rank does in a wave.
enum class Step : std::uint8_t {
  read,      ///< into a slab; on GPUs, what is read is copied to the GPU at the same time
  copy,      ///< of the last chunk to the GPU; GPUs only
  pack,      ///< on the host, reading what the page cache has, too
  exchange,  ///< with all ranks that have a part of it
  relay,     ///< the same between replicas
  unpack,    ///< what landed
};
inline constexpr std::size_t step_count = 6;

/// "read", "copy", ...
std::string_view name(Step step) noexcept;

/// One step of one rank, in seconds since the load began.
struct SimulatedSpan {
  Step step = Step::read;
  std::uint32_t rank = 0;
  std::uint32_t wave = 0;
  double begin = 0;
  double end = 0;
};

/// What one rank did. The phases are those of a load report, in seconds of the loading thread: they
/// follow one another.
struct SimulatedRank {
  double open = 0;
  double read = 0;            ///< waiting for reads, or packing from the page cache
  double host_to_device = 0;  ///< waiting for the last copy
  double pack = 0;
  double exchange = 0;           ///< waiting for other ranks included
  double read_busy = 0;          ///< with a read in progress
  std::uint64_t read_bytes = 0;  ///< as RankSummary
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
};

/// For what part of the time something that the ranks of a node share is busy, 0 to 1, on the node
/// where it is busiest.
struct SharedUse {
  double storage = 0;
  double host = 0;  ///< on the host, its cores; on GPUs, reading from the page cache
  double copies = 0;
  double network_out = 0;
  double network_in = 0;
};

/// A simulated load, from opening the files to the last tensor.
struct Simulation {
  double seconds = 0;
  double first_tensor_seconds = 0;  ///< until a tensor is complete on all ranks
  std::vector<SimulatedRank> ranks;
  SharedUse use;
  std::vector<SimulatedSpan> spans;  ///< if asked for, by end
};

/// Replays the load of a plan event by event: reads, copies, packing and exchange of every wave of
/// every rank, with the dependencies of the executor, sharing what nodes have (docs/prediction.md).
/// Deterministic. Takes time proportional to tensors x ranks, and memory to ranks, unless `spans`
/// are recorded: up to six for each rank and wave. ConfigError if the plan is for another number
/// of ranks.
Simulation simulate(const Plan& plan, const Cluster& cluster, bool spans = false);

}  // namespace safeshuffle
