// A group of ranks, each with one device. Made by the interop headers (mpi.hpp) or by `self`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace safeshuffle {

namespace comm {
class Transport;
}
namespace device {
class Device;
}

/// Where finished tensors live.
enum class DeviceKind : std::uint8_t { host };

/// "host".
std::string name(DeviceKind kind);

/// Names a device before it is opened.
struct DeviceSpec {
  DeviceKind kind = DeviceKind::host;

  /// CPU memory of the process.
  static DeviceSpec host() noexcept { return {DeviceKind::host}; }
};

/// Shared handle; copies refer to the same group. Collective calls on one communicator must not run
/// concurrently; all ranks must make them in the same order.
class Communicator {
 public:
  Communicator(std::shared_ptr<comm::Transport> transport, std::shared_ptr<device::Device> device);

  std::uint32_t rank() const noexcept;
  std::uint32_t size() const noexcept;
  DeviceKind device() const noexcept;

  /// "mpi" or "self".
  std::string transport_name() const;

  comm::Transport& transport() const noexcept { return *transport_; }
  const std::shared_ptr<device::Device>& device_handle() const noexcept { return device_; }

 private:
  std::shared_ptr<comm::Transport> transport_;
  std::shared_ptr<device::Device> device_;
};

/// A group of one rank; needs no MPI.
Communicator self(DeviceSpec device = DeviceSpec::host());

}  // namespace safeshuffle
