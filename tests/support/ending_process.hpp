// Processes that end without cleaning up.
#pragma once

#include <functional>
#include <sys/wait.h>
#include <unistd.h>

namespace safeshuffle::testing {

/// Runs `work` in a process of its own. It should end the process with `_exit` while its objects
/// exist: as a signal does, without destructors. Returns whether the process succeeded.
inline bool in_ending_process(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    ::_exit(0);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace safeshuffle::testing
