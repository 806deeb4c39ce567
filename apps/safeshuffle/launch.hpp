// How the process was started: alone, or as one rank of an MPI job.
#pragma once

#include "safeshuffle/communicator.hpp"

namespace safeshuffle::app {

/// The rank that the launcher gave this process; 0 if it was started alone.
int launched_rank();

/// Whether an MPI launcher started this process.
bool under_launcher();

/// Starts MPI if a launcher started this process. Collective.
void start_mpi();

/// Ends MPI if it was started. Returns when all ranks have come here: the first to exit with an
/// error makes the launcher end the others, which must have said by then what they have to say.
void end_mpi();

/// The group of this process: all ranks of the MPI job, which is started, or itself.
Communicator join_group(DeviceSpec device);

/// Ends all ranks with this exit code, also those that are stuck.
[[noreturn]] void abort_group(int code);

}  // namespace safeshuffle::app
