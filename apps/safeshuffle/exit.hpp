// How the command ends after a failure: the message, and the exit code (docs/command.md).
#pragma once

namespace safeshuffle::app {

/// Call in a catch block: prints the message of the exception being handled, once for the whole
/// group, and returns the exit code. If ranks may still wait for this one, ends the whole group
/// instead and does not return.
int report_failure();

/// Call before `main` returns: ends the process here if an abandoned thread may still be inside
/// NCCL, CUDA or a read, because it must not see static objects being destroyed.
void end_at_once_if_needed(int code);

}  // namespace safeshuffle::app
