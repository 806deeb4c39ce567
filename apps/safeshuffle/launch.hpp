// How the process was started: alone, as one rank of an MPI job, or as one of several that know
// where to meet (Bootstrap).
#pragma once

#include <chrono>

#include "safeshuffle/communicator.hpp"

namespace safeshuffle::app {

/// The rank that the launcher gave this process; 0 if it was started alone.
int launched_rank();

/// Whether a launcher of several ranks started this process.
bool under_launcher();

/// The group of this process: all ranks of the job, or itself. Begins MPI; at most once per
/// process. `timeout` bounds every wait for other ranks, but for MPI's own.
Communicator join_group(Device device, std::chrono::milliseconds timeout);

/// Whether other ranks may be waiting for this one.
bool in_group();

/// The last thing a process does: ends MPI. That waits for all ranks, so that none makes the
/// launcher end the job by its exit code before rank 0 has said what happened; a rank that `failed`
/// before MPI began takes part as well.
void leave_group(bool failed) noexcept;

/// Ends all ranks of an MPI job with this exit code, also those that are stuck; without MPI this
/// one, whose launcher ends the others.
[[noreturn]] void abort_group(int code);

}  // namespace safeshuffle::app
