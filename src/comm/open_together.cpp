#include "comm/open_together.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "comm/control/agreement.hpp"
#include "comm/gpu_transport.hpp"
#include "core/process.hpp"
#include "core/wire.hpp"
#include "device/host/host_device.hpp"

namespace safeshuffle::comm {
namespace {

// What a rank tells the others about the GPU it would open: which it is, or why it has none.
struct GpuCandidate {
  std::string obstacle;
  std::string address;
};

auto fields(core::As<GpuCandidate> auto& candidate) {
  return std::tie(candidate.obstacle, candidate.address);
}

GpuCandidate find_gpu(const Device& which, std::uint32_t local_rank) {
  GpuCandidate candidate{device::gpu_obstacle(), {}};
  if (!candidate.obstacle.empty()) return candidate;
  candidate.address = core::node_id() + " " + device::gpu_address(which.ordinal, local_rank);
  return candidate;
}

// Why some rank cannot have its own GPU or cannot reach the others; empty if all can.
std::string common_obstacle(Control& control, const Device& which, std::uint32_t local_rank,
                            std::chrono::milliseconds timeout) {
  const auto told =
      agree_on(control, timeout, [&] { return core::to_wire(find_gpu(which, local_rank)); });
  std::map<std::string, std::size_t> owners;
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    const auto candidate = core::from_wire<GpuCandidate>(told[rank]);
    const std::string who = "rank " + std::to_string(rank);
    if (!candidate.obstacle.empty()) return who + ": " + candidate.obstacle;
    const auto [owner, added] = owners.emplace(candidate.address, rank);
    if (!added) return who + " would share a GPU with rank " + std::to_string(owner->second);
  }
  return control.size() > 1 ? gpu_transport_obstacle() : "";
}

std::shared_ptr<device::Device> open(Control& control, const Device& which,
                                     std::uint32_t local_rank, std::chrono::milliseconds timeout) {
  std::shared_ptr<device::Device> opened;
  agree_on(control, timeout, [&] {
    opened = device::open_device(which, local_rank);
    return std::string();
  });
  return opened;
}

}  // namespace

std::shared_ptr<device::Device> open_together(Control& control, const Device& which,
                                              std::uint32_t local_rank,
                                              std::chrono::milliseconds timeout) {
  if (which.kind != DeviceKind::automatic) return open(control, which, local_rank, timeout);
  const std::string obstacle = common_obstacle(control, which, local_rank, timeout);
  if (obstacle.empty()) return open(control, Device::cuda(which.ordinal), local_rank, timeout);
  return std::make_shared<device::HostDevice>(device::HostDevice::default_threads(), obstacle);
}

}  // namespace safeshuffle::comm
