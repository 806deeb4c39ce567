// How the process was started: alone, or as one rank of an MPI job.
#pragma once

#include "safeshuffle/communicator.hpp"

namespace safeshuffle::app {

/// The rank that the launcher gave this process; 0 if it was started alone.
int launched_rank();

/// Whether an MPI launcher started this process.
bool under_launcher();

/// The group of this process: all ranks of the MPI job, or itself. Begins MPI; at most once per
/// process.
Communicator join_group(Device device);

/// Whether other ranks may be waiting for this one: MPI has begun.
bool in_group();

/// The last thing a process does: ends MPI. That waits for all ranks, so that none makes the
/// launcher end the job by its exit code before rank 0 has said what happened; a rank that `failed`
/// before MPI began takes part as well.
void leave_group(bool failed);

/// Ends all ranks with this exit code, also those that are stuck.
[[noreturn]] void abort_group(int code);

}  // namespace safeshuffle::app
