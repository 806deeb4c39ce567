// Opt-in interop with MPI; the only public header that includes <mpi.h>.
#pragma once

#include <chrono>

#include <mpi.h>

#include "safeshuffle/communicator.hpp"

namespace safeshuffle {

/// A communicator over the ranks of `comm`. Collective over `comm`.
///
/// MPI must be initialised and outlive the result. The library makes all MPI calls on the thread
/// that calls it. With MPI_THREAD_SINGLE or MPI_THREAD_FUNNELED that must be the thread that
/// initialised MPI: on another one this function, and collective calls on the result, throw
/// ConfigError, on this rank alone; the last copy of the result must be destroyed there as well
/// (not checked). With MPI_THREAD_SERIALIZED it is for the caller to see to it that no two threads
/// use MPI at once, be it on different communicators (not checked); MPI_THREAD_MULTIPLE has no such
/// rule. `comm` is duplicated and never freed; only for the
/// length of this call its error handler is replaced. The duplicate is freed with the last copy of
/// the result, unless MPI has been finalised by then or an operation was given up. That is a
/// collective call, in which MPI may wait for the other ranks without a limit (Open MPI and MPICH
/// do not). Errors of MPI calls are thrown as TransportError, whatever handler `comm` has.
///
/// With GPUs, data goes over NCCL and control messages over MPI, which need not know of GPUs.
/// NCCL is set up without waiting; the first load does that.
///
/// `timeout` bounds each wait for the others within this call, as Options::timeout does in a load;
/// with GPUs it must be longer than any rank takes to open its own. After a TimeoutError MPI may
/// still wait for the rank that was lost: MPI_Finalize need not return, MPI_Abort does.
/// Throws ConfigError (no such GPU, a build without CUDA or NCCL), MemoryError, TransportError,
/// TimeoutError (which names no rank if not all have called this).
Communicator from_mpi(MPI_Comm comm, Device device = Device::host(),
                      std::chrono::milliseconds timeout = std::chrono::minutes(5));

}  // namespace safeshuffle
