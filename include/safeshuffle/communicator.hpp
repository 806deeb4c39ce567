// A group of ranks, each with one device. Made by the interop headers (mpi.hpp, nccl.hpp), by
// bootstrap.hpp, or by `self`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "safeshuffle/device.hpp"

namespace safeshuffle {

namespace comm {
class Control;
class Transport;
}  // namespace comm
namespace device {
class Device;
}

/// Shared handle; copies refer to the same group. All ranks must make the collective calls on it in
/// the same order, one after the other. A call made on the communicator or a copy, on any thread,
/// while another one is in progress throws ConfigError at once, on this rank only; the call in
/// progress continues. Destroying the last handle of a group of GPUs waits, for some seconds at
/// most, until the other ranks of the node destroy theirs. If they do not, NCCL keeps waiting on a
/// separate thread: the program should then end by `std::_Exit`, because `exit` would destroy
/// static objects that this thread uses.
class Communicator {
 public:
  /// For internal use, like `control`, `transport` and `device_handle`: the types are not public.
  Communicator(std::shared_ptr<comm::Control> control, std::shared_ptr<comm::Transport> transport,
               std::shared_ptr<device::Device> device);

  std::uint32_t rank() const noexcept;
  std::uint32_t size() const noexcept;
  DeviceKind device() const noexcept;

  /// See Report::transport.
  std::string transport_name() const;

  comm::Control& control() const noexcept { return *control_; }
  comm::Transport& transport() const noexcept { return *transport_; }
  const std::shared_ptr<device::Device>& device_handle() const noexcept { return device_; }

 private:
  std::shared_ptr<comm::Control> control_;
  std::shared_ptr<comm::Transport> transport_;
  std::shared_ptr<device::Device> device_;
};

/// A group of one rank; needs no MPI. Throws ConfigError, TransportError.
Communicator self(Device device = Device::host());

}  // namespace safeshuffle
