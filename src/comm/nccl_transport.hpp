// The transport between GPUs over NCCL.
#pragma once

#include <memory>

#include "comm/nccl_group.hpp"
#include "comm/transport.hpp"
#include "device/cuda/cuda_device.hpp"

namespace safeshuffle::comm {

/// Exchanges over `group`, which is on `device`. Texts are gathered over `control`, a transport of
/// the same ranks, or, if that is null, over the group itself. Every wait is bounded, but for the
/// first exchange of a borrowed communicator that is blocking: NCCL then waits for the peers
/// itself. Throws MemoryError, TransportError.
std::unique_ptr<Transport> make_nccl_transport(std::shared_ptr<NcclGroup> group,
                                               std::shared_ptr<device::CudaDevice> device,
                                               std::shared_ptr<Transport> control = nullptr);

}  // namespace safeshuffle::comm
