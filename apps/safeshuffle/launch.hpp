// The group of this process, which was started alone, as one rank of an MPI job, or as one of
// several with a rendezvous address (Bootstrap): how it joins, fails and leaves.
#pragma once

#include <chrono>

#include "safeshuffle/communicator.hpp"

namespace safeshuffle::app {

/// If Open MPI 4 has bound this process to a single core, as it does by default with one or two
/// ranks, lets it use all CPUs that its cgroup permits. Call before `join_group`: threads started
/// earlier stay where they are.
void leave_default_binding();

/// The group of this process: all ranks of the job, or itself. Initialises MPI; call at most once
/// per process. `timeout` bounds every wait for other ranks. If MPI itself takes longer than that,
/// and longer than 10 s, to start, the process prints this and ends with the exit code of a
/// TimeoutError; its launcher then ends the others.
Communicator join_group(Device device, std::chrono::milliseconds timeout);

/// Call in a catch block: prints the message of the exception being handled, once for the whole
/// group, and returns the exit code (docs/command.md). If ranks may still wait for this one, ends
/// all ranks instead, including those that are stuck, and does not return.
int report_failure();

/// Call last in a process: finalises MPI. The wait for the other ranks is bounded as in join_group;
/// a rank with an exit code `code` other than 0 then ends without a message. Ends the process here
/// if an abandoned thread may still be inside NCCL, CUDA or a read, because it must not see static
/// objects being destroyed.
void leave_group(int code);

}  // namespace safeshuffle::app
