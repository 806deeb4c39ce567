// Costs: of a probe, and by default.
#include "safeshuffle/costs.hpp"

#include <algorithm>
#include <string_view>

#include "safeshuffle/probe.hpp"

#include "pipeline/cost_fields.hpp"

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

/// What remains of the rate `fresh` if copying itself, at `copy`, took no time; 0 if touching
/// memory for the first time takes none.
double first_touch(double copy, double fresh) {
  return copy > 0 && fresh > 0 && fresh < copy ? 1 / (1 / fresh - 1 / copy) : 0;
}

constexpr double giga = 1e9;

constexpr Costs host_defaults{
    .read_cold_direct_rank = 3 * giga,
    .read_cold_direct_node = 6 * giga,
    .read_cold_buffered_rank = 2 * giga,
    .read_cold_buffered_node = 4 * giga,
    .read_warm_rank = 8 * giga,
    .read_warm_node = 40 * giga,
    .memory_copy = 15 * giga,
    .first_touch = 8 * giga,
    .pack = 12 * giga,
    .pack_convert = 10 * giga,
    .exchange = 3 * giga,
    .wave_seconds = 50e-6,
};

constexpr Costs with_gpus() {
  Costs costs = host_defaults;
  costs.pack = 1000 * giga;
  costs.pack_convert = 1000 * giga;
  costs.host_to_device = 50 * giga;
  costs.device_copy = 1200 * giga;
  costs.exchange = 200 * giga;
  costs.wave_seconds = 100e-6;
  return costs;
}

}  // namespace

Costs costs_of(const Probe& probe) {
  Costs costs;
  costs.read_cold_direct_rank = median(probe, "read_cold_direct", Of::one_rank);
  costs.read_cold_direct_node = node_median(probe, "read_cold_direct");
  costs.read_cold_buffered_rank = median(probe, "read_cold_buffered", Of::one_rank);
  costs.read_cold_buffered_node = node_median(probe, "read_cold_buffered");
  costs.read_warm_rank = median(probe, "read_warm", Of::one_rank);
  costs.read_warm_node = node_median(probe, "read_warm");
  costs.memory_copy = median(probe, "memory_copy", Of::each_rank);
  costs.first_touch =
      first_touch(costs.memory_copy, median(probe, "memory_copy_fresh", Of::each_rank));
  costs.pack = median(probe, "pack", Of::each_rank);
  costs.pack_convert = median(probe, "pack_convert", Of::each_rank);
  costs.host_to_device = median(probe, "host_to_device", Of::each_rank);
  costs.device_copy = median(probe, "device_copy", Of::each_rank);
  costs.exchange = median(probe, "exchange", Of::each_rank);
  costs.wave_seconds = median(probe, "wave", Of::each_rank);
  return costs;
}

Costs default_costs(DeviceKind device) noexcept {
  return device == DeviceKind::cuda ? with_gpus() : host_defaults;
}

Costs with_defaults(Costs measured, DeviceKind device) noexcept {
  const Costs defaults = default_costs(device);
  for (const pipeline::CostField& field : pipeline::cost_fields) {
    if (measured.*field.value == 0) measured.*field.value = defaults.*field.value;
  }
  return measured;
}

}  // namespace safeshuffle
