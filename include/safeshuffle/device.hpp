// Which device a rank uses. Plain data.
#pragma once

#include <cstdint>
#include <string>

namespace safeshuffle {

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

}  // namespace safeshuffle
