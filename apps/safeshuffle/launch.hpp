// How the process was started: alone, or as one rank of an MPI job.
#pragma once

#include "safeshuffle/communicator.hpp"

namespace safeshuffle::app {

/// The rank that the launcher gave this process; 0 if it was started alone.
int launched_rank();

/// Whether an MPI launcher started this process.
bool under_launcher();

/// The group of this process: all ranks of the MPI job, or itself. Starts MPI; once per process.
Communicator join_group(DeviceSpec device);

/// Ends MPI if `join_group` started it. Returns when all ranks have called it: what any of them
/// printed before is out, and the launcher, which kills the job when the first rank fails, cannot
/// suppress it.
void leave_group();

/// Ends all ranks with this exit code, also those that are stuck.
[[noreturn]] void abort_group(int code);

}  // namespace safeshuffle::app
