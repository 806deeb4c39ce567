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
/// `stream` must outlive the result and every call that uses it. Control messages and data ride on
/// it; while a call of this library runs, nothing else may use it, on any thread, and no other NCCL
/// work may be under way on the GPU, because a load allocates memory first. None of this is
/// checked: two borrowings of one `comm`, unlike copies of one, do not know of each other. Must not
/// be called between ncclGroupStart and ncclGroupEnd (not detected) or while `stream` is captured
/// into a graph (ConfigError).
///
/// A load begins after the work that is enqueued on `stream` when it is called, and is complete, on
/// every rank, when it returns: work on any stream that is enqueued later sees the tensors. The
/// current device of the calling thread stays what it was.
///
/// One rank per process: allocating page-locked memory for one rank may wait for all GPUs of the
/// process, and so for a collective of another.
///
/// Waits end after `Options::timeout`, which must allow for NCCL's connecting to all peers.
/// Exception: with a blocking communicator
/// (ncclConfig_t::blocking = 1, the default), NCCL itself waits for the peers, without limit, when
/// it connects them on first use. After a time-out the work that hangs on the device may still
/// write to the tensors' memory, so that is not freed; abort `comm` to end it.
///
/// Throws ConfigError, MemoryError, TransportError, TimeoutError (`comm` has lost a peer already).
Communicator borrow(ncclComm_t comm, cudaStream_t stream = nullptr);

}  // namespace safeshuffle
