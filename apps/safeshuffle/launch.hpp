// The group of this process, which was started alone, as one rank of an MPI job, or as one of
// several with a rendezvous address (Bootstrap).
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

/// Whether other ranks may be waiting for this one.
bool in_group();

/// Whether this rank is to report the error that ends it, if the ranks cannot agree on it. Waits
/// for seconds, but never for another rank, so that of the ranks of a node only one reports, and
/// preferably one that `has_failed` itself; it is to end the group then. The others wait here to be
/// ended. If the launcher provides no directory of the job (PMIx does), all report.
bool speaks_for_group(bool has_failed);

/// Call last in a process: finalises MPI. That waits for all ranks, so that no exit code makes the
/// launcher end the job before rank 0 has reported the error. The wait is bounded as in join_group;
/// a rank with an exit code `code` other than 0 then ends without a message.
void leave_group(int code);

/// Ends all ranks of an MPI job with this exit code, including those that are stuck; without MPI,
/// ends this one, and the launcher ends the others.
[[noreturn]] void abort_group(int code);

}  // namespace safeshuffle::app
