#include "exit.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "safeshuffle/error.hpp"

#include "core/detached_work.hpp"
#include "core/error_wire.hpp"
#include "launch.hpp"

namespace safeshuffle::app {
namespace {

void print(const std::string& message) {
  fmt::print(stderr, "safeshuffle: error: {}\n", message);
  std::fflush(stderr);
}

// Whether every rank has this same error. Others are a rank's own, and some may wait for ever.
bool is_agreed(const ErrorRecord& error) {
  return error.rank >= 0 && is_common(error.kind);
}

// Time for ranks that notice a lost peer at about the same time to clean up what they were writing.
constexpr std::chrono::milliseconds grace{500};

// Whether this rank has failed itself, and has not only lost another.
bool is_own(const ErrorRecord& error) {
  return error.kind == ErrorKind::transport && error.rank < 0;
}

// Rank 0 speaks for all if it can; should it be the one that is stuck, the next rank does. Before
// them comes whose own failure it is: the others may know only that it is gone.
std::chrono::milliseconds turn(const ErrorRecord& error) {
  constexpr std::chrono::milliseconds one{1000};
  constexpr int last = 10;  // those that come later need not wait longer
  const bool lost_another = error.kind == ErrorKind::timeout;
  if (is_own(error)) return grace + std::min(one / 10 * launched_rank(), one / 2);
  return grace + one * (std::min(launched_rank(), last) + int{lost_another});
}

[[noreturn]] void end_group(ErrorRecord error) {
  std::this_thread::sleep_for(turn(error));
  if (is_own(error)) error.rank = launched_rank();
  print(describe(error));
  abort_group(static_cast<int>(error.kind));
}

}  // namespace

int report_failure() {
  const ErrorRecord error = core::current_error();
  if (in_group() && !is_agreed(error)) end_group(error);
  if (launched_rank() == 0) print(describe(error));
  return static_cast<int>(error.kind);
}

void end_at_once_if_needed(int code) {
  if (!core::has_detached_work()) return;
  std::cout << std::flush;
  std::fflush(stdout);
  std::fflush(stderr);
  std::_Exit(code);
}

}  // namespace safeshuffle::app
