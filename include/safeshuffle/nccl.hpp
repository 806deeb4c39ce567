// Opt-in interop with NCCL and CUDA; the only public header that includes <nccl.h>.
#pragma once

#include <chrono>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "safeshuffle/communicator.hpp"

namespace safeshuffle {

/// A communicator over the ranks of `comm`, each with the GPU that `comm` was made on; MPI is not
/// needed. Collective over `comm`.
///
/// `comm` is borrowed: never destroyed, aborted or reconfigured, not even after a failure. It and
/// `stream` must outlive the result and every call that uses it. Data is sent over it, and in this
/// call the address of rank 0, to which the others then stay connected by TCP, for control
/// messages. While a call of this library runs, nothing else may use it, on any thread, and no
/// other NCCL operation may be in progress on the GPU, because a load allocates memory first. None
/// of this is checked: if `comm` is borrowed twice, the results do not know of each other, unlike
/// copies of one result. Must not be called between ncclGroupStart and ncclGroupEnd (not detected)
/// or while `stream` is captured into a graph (ConfigError).
///
/// A load begins after the work that is already enqueued on `stream`, and is complete, on every
/// rank, when it returns: work enqueued later on any stream sees the tensors. The current device of
/// the calling thread is left unchanged.
///
/// One rank per process: allocating pinned memory for one rank may wait for all GPUs of the
/// process, and so for a collective of another rank.
///
/// Rank 0 chooses the network interface for this as NCCL does: the first that is up and that
/// NCCL_SOCKET_IFNAME (prefixes; `=` for exact names, `^` to exclude) and NCCL_SOCKET_FAMILY allow,
/// by default any but those of Docker and loopback, which come last. It listens there, at a port
/// that the system chooses, until this call returns; a connection without the token that was sent
/// over `comm` is refused.
///
/// All ranks must call this within `timeout`, which is also the time for the others to connect to
/// rank 0. If not all can, all throw the same TimeoutError, with the address. A rank that cannot
/// allocate memory for this call throws alone, and the others time out. In a load, waits end
/// after `Options::timeout`, which must allow for NCCL connecting to all peers; ranks that are lost
/// are named.
/// Exception: with a blocking communicator (ncclConfig_t::blocking = 1, the default), NCCL itself
/// waits for the peers, without limit, when it connects to them on first use. After a time-out, the
/// operation that hangs on the device may still write to the tensors' memory, so that memory is not
/// freed; abort `comm` to end the operation.
///
/// Throws ConfigError, also if no interface is allowed, MemoryError, TransportError, TimeoutError.
Communicator borrow(ncclComm_t comm, cudaStream_t stream = nullptr,
                    std::chrono::milliseconds timeout = std::chrono::minutes(5));

}  // namespace safeshuffle
