// A group of ranks, each with one device. Made by the interop headers (mpi.hpp, nccl.hpp), by
// bootstrap.hpp, or by `self`.
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

/// Where finished tensors are stored. A communicator's own kind is never `automatic`.
enum class DeviceKind : std::uint8_t {
  host,       ///< CPU memory
  cuda,       ///< a GPU
  automatic,  ///< a GPU if every rank can have its own, else the host
};

/// "host", "cuda", "auto".
std::string name(DeviceKind kind);

/// Which device to open.
struct Device {
  /// Ordinal of a GPU: the rank's position among the ranks of its node, modulo the number of GPUs
  /// visible to the process. NCCL rejects ranks of one node that share a GPU.
  static constexpr int by_local_rank = -1;

  DeviceKind kind = DeviceKind::host;
  int ordinal = by_local_rank;  ///< CUDA ordinal of the GPU in this process

  /// CPU memory of the process.
  static Device host() noexcept { return {DeviceKind::host}; }

  /// One GPU per rank. The process creates no context and allocates no memory on any other.
  static Device cuda(int ordinal = by_local_rank) noexcept { return {DeviceKind::cuda, ordinal}; }

  /// See DeviceKind::automatic.
  static Device automatic() noexcept { return {DeviceKind::automatic}; }
};

/// Shared handle; copies refer to the same group. All ranks must make the collective calls on it in
/// the same order, one after the other. A call made on the communicator or a copy, on any thread,
/// while another one is in progress throws ConfigError at once, on this rank only; the call in
/// progress continues. Destroying the last handle of a group of GPUs waits, for some seconds at
/// most, until the other ranks of the node destroy theirs. If they do not, NCCL keeps waiting on a
/// separate thread: the program should then end by `std::_Exit`, because `exit` would destroy
/// static objects that this thread uses.
class Communicator {
 public:
  /// For internal use, like `transport` and `device_handle`: the types are not public.
  Communicator(std::shared_ptr<comm::Transport> transport, std::shared_ptr<device::Device> device);

  std::uint32_t rank() const noexcept;
  std::uint32_t size() const noexcept;
  DeviceKind device() const noexcept;

  /// See Report::transport.
  std::string transport_name() const;

  comm::Transport& transport() const noexcept { return *transport_; }
  const std::shared_ptr<device::Device>& device_handle() const noexcept { return device_; }

 private:
  std::shared_ptr<comm::Transport> transport_;
  std::shared_ptr<device::Device> device_;
};

/// A group of one rank; needs no MPI. Throws ConfigError, TransportError.
Communicator self(Device device = Device::host());

}  // namespace safeshuffle
