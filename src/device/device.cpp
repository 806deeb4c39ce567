#include "device/device.hpp"

#include "safeshuffle/error.hpp"

#include "device/cuda/open.hpp"
#include "device/host/host_device.hpp"

namespace safeshuffle {

std::string name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::host:
      return "host";
    case DeviceKind::cuda:
      return "cuda";
    case DeviceKind::automatic:
      return "auto";
  }
  return "unknown";
}

namespace device {

std::unique_ptr<DeviceReads> Staging::make_device_reads(std::span<const std::span<std::byte>>) {
  throw IoError("the device is not a GPU");
}

std::shared_ptr<Device> open_device(const safeshuffle::Device& which, std::uint32_t local_rank) {
  switch (which.kind) {
    case DeviceKind::host:
      return std::make_shared<HostDevice>();
    case DeviceKind::cuda:
      return open_gpu(which.ordinal, local_rank);
    case DeviceKind::automatic: {
      const std::string obstacle = gpu_obstacle();
      if (obstacle.empty()) return open_gpu(which.ordinal, local_rank);
      return std::make_shared<HostDevice>(HostDevice::default_threads(), obstacle);
    }
  }
  throw ConfigError("unknown device kind");
}

}  // namespace device
}  // namespace safeshuffle
