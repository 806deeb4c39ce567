// The group of this process, which was started alone, as one rank of an MPI job, or as one of
// several that know where to meet (Bootstrap).
#pragma once

#include <chrono>

#include "safeshuffle/communicator.hpp"
#include "safeshuffle/error.hpp"

namespace safeshuffle::app {

/// The group of this process: all ranks of the job, or itself. Begins MPI; at most once per
/// process. Throws the error of a rank that has failed before. `timeout` bounds every wait for
/// other ranks. Should MPI itself take longer than that, and than 10 s, to begin, the process says
/// so and ends with the exit code of a TimeoutError; its launcher then ends the others.
Communicator join_group(Device device, std::chrono::milliseconds timeout);

/// Whether other ranks may be waiting for this one.
bool in_group();

/// To be called with the error of a rank that fails. If MPI has started this rank, and it fails
/// before it has joined the group, all ranks are told; returned is then the error of the lowest
/// that has failed so. Else, or if the others do not listen within 10 s, that is `own`.
ErrorRecord common_failure(ErrorRecord own);

/// Whether this rank is to say what happened, where the ranks cannot agree on it any more: the best
/// is one that `has_failed` itself. Without MPI each rank says it.
bool speaks_for_group(bool has_failed);

/// Returns after 10 s: a rank that is not to speak waits for the one that does to end it.
void await_end();

/// The last thing a process does: ends MPI. That waits for all ranks, so that none makes the
/// launcher end the job by its exit code before rank 0 has said what happened. Bounded as beginning
/// it is; a rank that fails, with exit code `code`, then ends without a word.
void leave_group(int code);

/// Ends all ranks of an MPI job with this exit code, also those that are stuck; without MPI this
/// one, whose launcher ends the others.
[[noreturn]] void abort_group(int code);

}  // namespace safeshuffle::app
