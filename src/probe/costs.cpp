// What a probe measured, as costs.
#include "safeshuffle/costs.hpp"

#include <algorithm>
#include <string_view>

#include "safeshuffle/probe.hpp"

namespace safeshuffle {
namespace {

using Of = Measurement::Of;

/// The median; 0 if it was not measured.
double median(const Probe& probe, std::string_view name, Of of) {
  const auto found = std::ranges::find_if(probe.measurements, [&](const Measurement& each) {
    return each.name == name && each.of == of;
  });
  return found == probe.measurements.end() || !found->result ? 0 : found->result->median;
}

/// A single rank alone is all ranks of its node.
double node_median(const Probe& probe, std::string_view name) {
  const bool single = probe.place.ranks_per_node == 1 && probe.place.nodes == 1;
  return median(probe, name, single ? Of::one_rank : Of::node);
}

/// What remains of the rate `fresh`, to new memory, if moving data itself, at `used`, took no time.
/// Touching memory for the first time may take too little to be seen; it takes a hundredth of
/// moving at least, so that it is known and finite. 0 if either is not known.
double remainder(double used, double fresh) {
  if (used <= 0 || fresh <= 0) return 0;
  constexpr double least = 0.01;
  return 1 / std::max(1 / fresh - 1 / used, least / used);
}

/// Of each rank, while all touch memory.
double first_touch(const Probe& probe) {
  return remainder(node_median(probe, "read_warm"), node_median(probe, "read_warm_fresh")) /
         probe.place.ranks_per_node;
}

}  // namespace

Costs costs_of(const Probe& probe) {
  Costs costs;
  costs.read_cold_direct_rank = median(probe, "read_cold_direct", Of::one_rank);
  costs.read_cold_direct_node = node_median(probe, "read_cold_direct");
  costs.read_cold_buffered_rank = median(probe, "read_cold_buffered", Of::one_rank);
  costs.read_cold_buffered_node = node_median(probe, "read_cold_buffered");
  costs.request_seconds = median(probe, "request", Of::one_rank);
  costs.read_warm_rank = median(probe, "read_warm", Of::one_rank);
  costs.read_warm_node = node_median(probe, "read_warm");
  costs.first_touch = first_touch(probe);
  costs.pack = median(probe, "pack", Of::each_rank);
  costs.pack_convert = median(probe, "pack_convert", Of::each_rank);
  costs.host_to_device = median(probe, "host_to_device", Of::each_rank);
  costs.exchange = median(probe, "exchange", Of::each_rank);
  costs.wave_seconds = median(probe, "wave", Of::each_rank);
  return costs;
}

}  // namespace safeshuffle
