// The transport between GPUs over NCCL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/exchange/nccl_group.hpp"
#include "comm/exchange/transport.hpp"
#include "device/cuda/cuda_device.hpp"

namespace safeshuffle::comm {

/// The buffers of a transport of `size` ranks on its GPU. Allocate them before ranks depend on each
/// other.
struct NcclBuffers {
  /// Throws MemoryError, TransportError.
  NcclBuffers(std::shared_ptr<device::CudaDevice> on, std::uint32_t size);

  std::shared_ptr<device::CudaDevice> device;
  std::uint64_t tokens_bytes;         ///< of all tokens
  std::shared_ptr<std::byte> tokens;  ///< one per root, one per sender, one per rank for barriers
  std::shared_ptr<std::byte> votes;   ///< pinned: see Votes
};

/// Exchanges over `group` with `buffers` for as many ranks on the same GPU. No call waits, except
/// in the first exchange of a borrowed blocking communicator: there, NCCL itself waits for the
/// peers. NCCL does not know which peers are missing.
std::unique_ptr<Transport> make_nccl_transport(std::shared_ptr<NcclGroup> group,
                                               NcclBuffers buffers);

}  // namespace safeshuffle::comm
