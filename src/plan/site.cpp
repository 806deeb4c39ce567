#include <algorithm>
#include <string>

#include "safeshuffle/error.hpp"
#include "safeshuffle/prediction.hpp"

#include "core/arithmetic.hpp"
#include "core/text.hpp"

namespace safeshuffle {
namespace plan {
namespace {

// What each of `ranks` on a node gets if all do the same with `threads` of its cores each, at
// `each_rank` when it was measured. If the ranks of the measurement left cores idle, more ranks use
// those as well.
double shared_rate(const MachineModel& machine, double ranks, double each_rank, unsigned threads) {
  const double cores = machine.cores;
  const double used = std::min<double>(threads, cores);
  const double node = each_rank * std::max<double>(machine.ranks_per_node, cores / used);
  return std::min(node * used / cores, node / ranks);
}

void share_cores(const MachineModel& machine, double ranks, Costs& costs) {
  constexpr unsigned pack_threads = 4;  // at most; they also touch most of the memory
  for (double Costs::*cost : {&Costs::first_touch, &Costs::pack, &Costs::pack_convert}) {
    costs.*cost = shared_rate(machine, ranks, costs.*cost, pack_threads);
  }
  costs.exchange = shared_rate(machine, ranks, costs.exchange, 1);
}

std::uint32_t fewest_nodes(const MachineModel& machine, std::uint32_t world) {
  if (machine.device == DeviceKind::host) return 1;
  return static_cast<std::uint32_t>(core::ceil_div(world, machine.ranks_per_node));
}

void check_nodes(const MachineModel& machine, std::uint32_t world, std::uint32_t nodes) {
  const std::string ranks = core::plural(world, "rank");
  const std::string name = "the machine " + machine.name;
  if (nodes > world) throw ConfigError(ranks + " cannot be on " + core::plural(nodes, "node"));
  if (machine.device == DeviceKind::cuda && nodes < fewest_nodes(machine, world)) {
    throw ConfigError(ranks + " on " + core::plural(nodes, "node") + ", but " + name + " has " +
                      core::plural(machine.ranks_per_node, "GPU") + " per node");
  }
  if (nodes > 1 && machine.network_node == 0) {
    throw ConfigError(name + " has no \"network_node\", which several nodes need");
  }
}

}  // namespace
}  // namespace plan

Site site_on(const MachineModel& machine, std::uint32_t world, std::uint32_t nodes,
             double cached_share) {
  if (nodes == 0) nodes = plan::fewest_nodes(machine, world);
  plan::check_nodes(machine, world, nodes);
  const auto ranks =
      static_cast<double>(core::ceil_div(world, nodes));  // of all nodes but the last
  Site site;
  site.device = machine.device;
  site.nodes = nodes;
  site.cached_share = cached_share;
  site.costs = machine.costs;
  site.costs_origin = machine.name;
  if (site.device == DeviceKind::host) plan::share_cores(machine, ranks, site.costs);
  if (site.device == DeviceKind::cuda && machine.host_to_device_node != 0) {
    site.costs.host_to_device =
        std::min(site.costs.host_to_device, machine.host_to_device_node / ranks);
  }
  if (nodes > 1) {  // a rank sends the same to each of the others
    const double remote = (world - ranks) / (world - 1.0);
    site.costs.exchange = std::min(site.costs.exchange, machine.network_node / ranks / remote);
  }
  return site;
}

}  // namespace safeshuffle
