// Opt-in interop with MPI; the only public header that includes <mpi.h>. Link safeshuffle::mpi.
#pragma once

#include <chrono>

#include <mpi.h>

#include "safeshuffle/communicator.hpp"

namespace safeshuffle {

/// A communicator over the ranks of `comm`. Collective over `comm`.
///
/// MPI must be initialised, and must not be finalised while the result is used. The library makes
/// all MPI calls on the thread that calls it. With MPI_THREAD_SINGLE or MPI_THREAD_FUNNELED that
/// must be the thread that initialised MPI: on another one, this function and collective calls on
/// the result throw ConfigError, on this rank only; the last copy of the result must be destroyed
/// on that thread as well (not checked). With MPI_THREAD_SERIALIZED, the caller must ensure that no
/// two threads use MPI concurrently, even on different communicators (not checked).
/// MPI_THREAD_MULTIPLE has no such restriction.
///
/// `comm` is duplicated and never freed; its error handler is replaced only during this call. The
/// duplicate is freed with the last copy of the result, unless MPI has been finalised by then or an
/// operation was abandoned. Freeing is a collective call, in which MPI may wait for the other ranks
/// without limit (Open MPI and MPICH do not). Errors of MPI calls are thrown as TransportError,
/// whatever error handler `comm` has.
///
/// With GPUs, data is sent over NCCL and control messages over MPI, which need not be GPU-aware.
/// NCCL initialisation is started but not awaited; the first load waits for it.
///
/// `timeout` bounds each wait for the other ranks within this call, as Options::timeout does in a
/// load; with GPUs it must be longer than any rank takes to open its own. After a TimeoutError, MPI
/// may still wait for the lost rank: MPI_Finalize may never return, MPI_Abort does.
/// Throws ConfigError (no libsafeshuffle_mpi.so, no such GPU, a build without CUDA or NCCL),
/// MemoryError, TransportError, TimeoutError (which names no rank if not all have called this).
Communicator from_mpi(MPI_Comm comm, Device device = Device::host(),
                      std::chrono::milliseconds timeout = std::chrono::minutes(5));

}  // namespace safeshuffle
