// Opt-in interop with NCCL and CUDA; the only public header that includes <nccl.h>.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "safeshuffle/communicator.hpp"

namespace safeshuffle {

/// A communicator over the ranks of `comm`, each with the GPU that `comm` was made on; MPI is not
/// needed. Collective over `comm`.
///
/// `comm` is borrowed: never destroyed, aborted or reconfigured, not even after a failure. It and
/// `stream` must outlive the result and every call that uses it. Control messages and data are sent
/// over it. While a call of this library runs, nothing else may use it, on any thread, and no other
/// NCCL operation may be in progress on the GPU, because a load allocates memory first. None of
/// this is checked: if `comm` is borrowed twice, the results do not know of each other, unlike
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
/// Waits end after `Options::timeout`, which must allow for NCCL connecting to all peers.
/// Exception: with a blocking communicator (ncclConfig_t::blocking = 1, the default), NCCL itself
/// waits for the peers, without limit, when it connects to them on first use. After a time-out, the
/// operation that hangs on the device may still write to the tensors' memory, so that memory is not
/// freed; abort `comm` to end the operation.
///
/// Throws ConfigError, MemoryError, TransportError, TimeoutError (`comm` has already lost a peer).
Communicator borrow(ncclComm_t comm, cudaStream_t stream = nullptr);

}  // namespace safeshuffle
