// How the command ends when something failed: the message, and the code of docs/command.md.
#pragma once

namespace safeshuffle::app {

/// To be called in a catch block: prints the message of the exception being handled, once for the
/// whole group, and returns the exit code. Does not return if ranks may still wait for this one:
/// the group is then ended.
int report_failure();

}  // namespace safeshuffle::app
