// Tests of what needs an environment or several processes: each rank is a child of the test.
#pragma once

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace safeshuffle::testing {

using Environment = std::vector<std::pair<const char*, std::string>>;

/// Ends a child with status 1 and the text.
inline void expect(bool condition, const char* text, const char* file, int line) {
  if (condition) return;
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + text);
}

/// For children, whose checks Catch2 does not see.
#define EXPECT(condition) \
  ::safeshuffle::testing::expect(static_cast<bool>(condition), #condition, __FILE__, __LINE__)

/// Signals end the child as they end any program, not as Catch2 would have it; and it does not stay
/// behind when a test is killed.
inline void reset_signals() {
  for (const int number : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGINT, SIGTERM}) {
    std::signal(number, SIG_DFL);
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
}

[[noreturn]] inline void run_child(const Environment& environment,
                                   const std::function<void()>& body) {
  reset_signals();
  for (const auto& [name, value] : environment) setenv(name, value.c_str(), 1);
  try {
    body();
    std::exit(0);  // with everything that happens at exit
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    _exit(1);
  }
}

/// To be called before this process uses a GPU: threads are not copied.
inline pid_t start_child(const Environment& environment, const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) run_child(environment, body);
  if (child < 0) throw std::runtime_error("fork");
  return child;
}

/// Its exit status, or minus the signal that has ended it.
inline int end_of(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) throw std::runtime_error("waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// The status of one process with this environment.
inline int status_of(const Environment& environment, const std::function<void()>& body) {
  return end_of(start_child(environment, body));
}

inline int status_of(const std::function<void()>& body) {
  return status_of({}, body);
}

}  // namespace safeshuffle::testing
