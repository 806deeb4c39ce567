// Processes that end without cleaning up.
#pragma once

#include <functional>
#include <sys/wait.h>
#include <unistd.h>

namespace safeshuffle::testing {

/// Runs `work` in a process of its own. It should end that by `_exit` while it still has what it
/// works with: as a signal does, without destructors. Whether the process ended well.
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
