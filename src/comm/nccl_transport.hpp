// The transport between GPUs over NCCL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/nccl_gather.hpp"
#include "comm/nccl_group.hpp"
#include "comm/transport.hpp"
#include "device/cuda/cuda_device.hpp"

namespace safeshuffle::comm {

/// The buffers of a transport of `size` ranks on its GPU. Allocate them before ranks depend on each
/// other. If it `gathers`, texts can be gathered over NCCL.
struct NcclBuffers {
  /// Throws MemoryError, TransportError.
  NcclBuffers(std::shared_ptr<device::CudaDevice> on, std::uint32_t size, bool gathers);

  std::uint64_t device_bytes() const noexcept;

  std::shared_ptr<device::CudaDevice> device;
  std::uint64_t tokens_bytes;          ///< of all tokens
  std::shared_ptr<std::byte> tokens;   ///< one per root, one per sender, one per rank for barriers
  std::shared_ptr<std::byte> signals;  ///< pinned: see Signals
  std::unique_ptr<NcclGather> gather;
};

/// Exchanges over `group` with `buffers` for as many ranks on the same GPU. Texts are gathered over
/// `control`, a transport of the same ranks, or, if that is null, over the group itself. Every wait
/// is bounded, except in the first exchange of a borrowed blocking communicator: there, NCCL itself
/// waits for the peers.
std::unique_ptr<Transport> make_nccl_transport(std::shared_ptr<NcclGroup> group,
                                               NcclBuffers buffers,
                                               std::shared_ptr<Transport> control = nullptr);

}  // namespace safeshuffle::comm
