#include "simulation/work.hpp"

#include <algorithm>

#include "core/defaults.hpp"

namespace safeshuffle::simulation {
namespace {

double& of(Work& work, SharedResource resource) {
  return work.use[static_cast<std::size_t>(resource)];
}

// The rate of what remains if a part of the work is done at another rate; 0 if nothing remains.
double remainder(double rate, double part_rate) {
  return rate < part_rate ? 1 / (1 / rate - 1 / part_rate) : 0;
}

// GPUs do not share what they pack and exchange with; the host's ranks share its cores.
CoreRate rate_on(const MachineModel& machine, double each_rank, unsigned threads) {
  if (machine.device == DeviceKind::host) return core_rate(machine, each_rank, threads);
  return {0, each_rank};
}

double seconds_for(double bytes, double rate) {
  return rate > 0 ? bytes / rate : 0;
}

}  // namespace

WorkModel::WorkModel(const Cluster& cluster)
    : cluster_(cluster),
      costs_(cluster.machine.costs),
      on_gpus_(cluster.machine.device == DeviceKind::cuda),
      pack_(rate_on(cluster.machine, costs_.pack, pack_threads(cluster.machine))),
      convert_(rate_on(cluster.machine, remainder(costs_.pack_convert, costs_.pack),
                       pack_threads(cluster.machine))),
      touch_(rate_on(cluster.machine, costs_.first_touch, pack_threads(cluster.machine))),
      exchange_(rate_on(cluster.machine, costs_.exchange, 1)),
      warm_{costs_.read_warm_node, costs_.read_warm_rank} {}

void WorkModel::add_cores(double bytes, const CoreRate& rate, Work& work) const {
  work.alone += seconds_for(bytes, rate.alone);
  of(work, SharedResource::host) += seconds_for(bytes, rate.node);
}

// Memory that was allocated on the host is provided when it is written to for the first time.
void WorkModel::touch(double bytes, Work& work) const {
  if (!on_gpus_) add_cores(bytes, touch_, work);
}

Work WorkModel::read(const Traffic& traffic, bool fresh) const {
  Work work;
  const double cached = cluster_.cached_share * traffic.read;
  const double cold = traffic.read - cached;
  work.alone = seconds_for(cold, costs_.read_cold_direct_rank);
  of(work, SharedResource::storage) = seconds_for(cold, costs_.read_cold_direct_node);
  if (on_gpus_) {
    add_cores(cached, warm_, work);
    work.alone = std::max(work.alone, seconds_for(traffic.read, costs_.host_to_device));
    of(work, SharedResource::copies) =
        seconds_for(traffic.read, cluster_.machine.host_to_device_node);
  } else if (fresh) {
    touch(cold, work);
  }
  return work;
}

Work WorkModel::last_copy(const Traffic& traffic) const {
  Work work;
  if (!on_gpus_) return work;
  const double bytes = std::min(traffic.read, static_cast<double>(core::gpu_defaults.chunk));
  work.alone = seconds_for(bytes, costs_.host_to_device);
  return work;
}

Work WorkModel::pack(const Traffic& traffic, bool fresh) const {
  Work work;
  const double cached = on_gpus_ ? 0 : cluster_.cached_share;
  add_cores(cached * (traffic.packed + traffic.overhead), warm_, work);
  add_cores((1 - cached) * traffic.packed, pack_, work);
  add_cores(traffic.converted, convert_, work);
  touch(traffic.own + (fresh ? traffic.exchange.sent : 0), work);
  return work;
}

// Sends and receives at the same time.
Work WorkModel::exchange(const Messages& messages) const {
  Work work;
  work.alone = seconds_for(std::max(messages.sent, messages.received), exchange_.alone);
  of(work, SharedResource::host) =
      seconds_for((messages.sent + messages.received) / 2, exchange_.node);
  touch(messages.received, work);
  const double network = cluster_.machine.network_node;
  of(work, SharedResource::network_out) = seconds_for(messages.sent_far, network);
  of(work, SharedResource::network_in) = seconds_for(messages.received_far, network);
  return work;
}

Work WorkModel::unpack(const Traffic& traffic) const {
  Work work;
  add_cores(traffic.landed, pack_, work);
  touch(traffic.landed, work);
  return work;
}

}  // namespace safeshuffle::simulation
