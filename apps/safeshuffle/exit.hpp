// How the command ends when something failed: the message, and the code of docs/command.md.
#pragma once

namespace safeshuffle::app {

/// To be called in a catch block: prints the message of the exception being handled, once for the
/// whole group, and returns the exit code. Does not return if ranks may still wait for this one:
/// the group is then ended.
int report_failure();

/// Before `main` returns: ends the process here if a thread was given up that may still be in the
/// midst of NCCL, CUDA or a read, since it must not see static objects being destroyed.
void end_at_once_if_needed(int code);

}  // namespace safeshuffle::app
