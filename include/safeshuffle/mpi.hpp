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
/// the result, a collective call, unless MPI has been finalised by then. Errors of MPI calls are
/// thrown as TransportError, whatever handler `comm` has.
///
/// With GPUs, data goes over NCCL and control messages over MPI, which need not know of GPUs.
/// NCCL is set up without waiting; the first load does that.
///
/// `timeout` bounds each wait for the others within this call, as Options::timeout does in a load,
/// but not MPI's own: MPI_Comm_dup and MPI_Comm_split_type return when all ranks have called them.
/// Throws ConfigError (no such GPU, a build without CUDA or NCCL), MemoryError, TransportError,
/// TimeoutError.
Communicator from_mpi(MPI_Comm comm, Device device = Device::host(),
                      std::chrono::milliseconds timeout = std::chrono::minutes(5));

}  // namespace safeshuffle
