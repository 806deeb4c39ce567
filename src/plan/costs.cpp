// Costs where nothing was measured: estimates for one NVMe disk and, with GPUs, NVLink
// (docs/probe.md).
#include "safeshuffle/costs.hpp"

#include "plan/cost_fields.hpp"

namespace safeshuffle {
namespace {

constexpr double giga = 1e9;

constexpr Costs host_defaults{
    .read_cold_direct_rank = 3 * giga,
    .read_cold_direct_node = 6 * giga,
    .read_cold_buffered_rank = 2 * giga,
    .read_cold_buffered_node = 4 * giga,
    .read_warm_rank = 8 * giga,
    .read_warm_node = 40 * giga,
    .first_touch = 8 * giga,
    .pack = 12 * giga,
    .pack_convert = 10 * giga,
    .exchange = 6 * giga,
    .wave_seconds = 50e-6,
};

constexpr Costs with_gpus() {
  Costs costs = host_defaults;
  costs.pack = 1000 * giga;
  costs.pack_convert = 1000 * giga;
  costs.host_to_device = 50 * giga;
  costs.exchange = 150 * giga;
  costs.wave_seconds = 400e-6;
  return costs;
}

// 16 connections of a rank, and a network of 25 Gbit/s. Amazon tells 100 to 200 ms of S3 ("Best
// practices design patterns: optimizing Amazon S3 performance").
constexpr Costs remote_defaults{
    .read_cold_buffered_rank = 1.2 * giga,
    .read_cold_buffered_node = 2.5 * giga,
    .request_seconds = 0.1,
};

}  // namespace

Costs default_remote_costs() noexcept {
  return remote_defaults;
}

Costs default_costs(DeviceKind device) noexcept {
  return device == DeviceKind::cuda ? with_gpus() : host_defaults;
}

Costs with_defaults(Costs measured, DeviceKind device) noexcept {
  return with_defaults(measured, default_costs(device));
}

Costs with_defaults(Costs measured, const Costs& defaults) noexcept {
  for (const plan::CostField& field : plan::cost_fields) {
    if (measured.*field.value == 0) measured.*field.value = defaults.*field.value;
  }
  return measured;
}

}  // namespace safeshuffle
