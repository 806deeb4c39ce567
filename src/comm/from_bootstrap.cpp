#include <memory>
#include <utility>

#include "safeshuffle/bootstrap.hpp"
#include "safeshuffle/error.hpp"

#include "comm/gpu_transport.hpp"
#include "comm/transport.hpp"
#include "device/device.hpp"

namespace safeshuffle {

Communicator from_bootstrap(const Bootstrap& bootstrap, Device device) {
  if (bootstrap.size == 1) {
    return {comm::make_self_transport(), device::open_device(device, bootstrap.local_rank)};
  }
  if (device.kind == DeviceKind::host) {
    throw ConfigError(
        "without MPI, several ranks need GPUs: host memory can only be exchanged over MPI");
  }
  std::shared_ptr<device::Device> gpu;
  auto transport = comm::make_gpu_transport(bootstrap, [&] {
    return gpu = device::open_device(Device::cuda(device.ordinal), bootstrap.local_rank);
  });
  return {std::move(transport), std::move(gpu)};
}

}  // namespace safeshuffle
