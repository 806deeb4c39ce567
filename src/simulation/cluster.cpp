#include <algorithm>
#include <string>
#include <utility>

#include "safeshuffle/error.hpp"
#include "safeshuffle/prediction.hpp"

#include "core/arithmetic.hpp"
#include "core/text.hpp"
#include "simulation/sharing.hpp"

namespace safeshuffle {
namespace simulation {

// If the ranks of the measurement left cores idle, more ranks use those as well.
CoreRate core_rate(const MachineModel& machine, double each_rank, unsigned threads) {
  const double cores = machine.cores;
  const double used = std::min<double>(threads, cores);
  const double node = each_rank * std::max<double>(machine.ranks_per_node, cores / used);
  return {node, node * used / cores};
}

unsigned pack_threads(const MachineModel& machine) {
  constexpr unsigned most = 4;
  return std::min(machine.cores, most);
}

namespace {

// What each of the ranks of a node gets if all do the same.
double shared_rate(const Cluster& cluster, double each_rank, unsigned threads) {
  const CoreRate rate = core_rate(cluster.machine, each_rank, threads);
  return std::min(rate.alone, rate.node / cluster.ranks_per_node());
}

void share_cores(const Cluster& cluster, Costs& costs) {
  const unsigned threads = pack_threads(cluster.machine);
  for (double Costs::*cost :
       {&Costs::memory_copy, &Costs::first_touch, &Costs::pack, &Costs::pack_convert}) {
    costs.*cost = shared_rate(cluster, costs.*cost, threads);
  }
  costs.exchange = shared_rate(cluster, costs.exchange, 1);
}

// A rank sends the same to each of the others.
void share_network(const Cluster& cluster, Costs& costs) {
  if (cluster.nodes == 1) return;
  const double ranks = cluster.ranks_per_node();
  const double remote = (cluster.world - ranks) / (cluster.world - 1.0);
  costs.exchange = std::min(costs.exchange, cluster.machine.network_node / ranks / remote);
}

}  // namespace
}  // namespace simulation

Cluster make_cluster(MachineModel machine, std::uint32_t world, std::uint32_t nodes,
                     double cached_share) {
  const bool on_gpus = machine.device == DeviceKind::cuda;
  if (nodes == 0) {
    nodes = on_gpus ? static_cast<std::uint32_t>(core::ceil_div(world, machine.ranks_per_node)) : 1;
  }
  Cluster cluster{std::move(machine), world, nodes, cached_share};
  const std::string ranks = core::plural(world, "rank");
  const std::string name = "the machine " + cluster.machine.name;
  if (nodes > world) throw ConfigError(ranks + " cannot be on " + core::plural(nodes, "node"));
  if (on_gpus && cluster.ranks_per_node() > cluster.machine.ranks_per_node) {
    throw ConfigError(ranks + " on " + core::plural(nodes, "node") + ", but " + name + " has " +
                      core::plural(cluster.machine.ranks_per_node, "GPU") + " per node");
  }
  if (nodes > 1 && cluster.machine.network_node == 0) {
    throw ConfigError(name + " has no \"network_node\", which several nodes need");
  }
  return cluster;
}

Site site_of(const Cluster& cluster) {
  Site site;
  site.device = cluster.machine.device;
  site.nodes = cluster.nodes;
  site.cached_share = cluster.cached_share;
  site.costs = cluster.machine.costs;
  site.costs_origin = cluster.machine.name;
  if (site.device == DeviceKind::host) simulation::share_cores(cluster, site.costs);
  if (site.device == DeviceKind::cuda && cluster.machine.host_to_device_node != 0) {
    site.costs.host_to_device = std::min(
        site.costs.host_to_device, cluster.machine.host_to_device_node / cluster.ranks_per_node());
  }
  simulation::share_network(cluster, site.costs);
  return site;
}

}  // namespace safeshuffle
