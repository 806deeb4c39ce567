#include "device/device.hpp"

#include "safeshuffle/error.hpp"

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

std::shared_ptr<Device> open_device(const safeshuffle::Device& which) {
  if (which.kind == DeviceKind::host) return std::make_shared<HostDevice>();
  throw ConfigError("there is no device of the kind '" + name(which.kind) + "' yet");
}

}  // namespace device
}  // namespace safeshuffle
