#include "exit.hpp"

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "safeshuffle/error.hpp"

#include "comm/agreement.hpp"
#include "launch.hpp"

namespace safeshuffle::app {
namespace {

void print(const std::string& message) {
  fmt::print(stderr, "safeshuffle: error: {}\n", message);
  std::fflush(stderr);
}

// Whether every rank has this same error. Others are a rank's own, and some may wait for ever.
bool is_agreed(const ErrorRecord& error) {
  return error.rank >= 0 && error.kind != ErrorKind::timeout && error.kind != ErrorKind::transport;
}

// Time for ranks that notice a lost peer at about the same time to clean up what they were writing.
constexpr std::chrono::milliseconds grace{500};

// Rank 0 speaks for all if it can; should it be the one that is stuck, the next rank does.
[[noreturn]] void end_group(const std::string& message, int code) {
  std::this_thread::sleep_for(grace + std::chrono::milliseconds(1000) * launched_rank());
  print(message);
  abort_group(code);
}

}  // namespace

int report_failure() {
  const ErrorRecord error = comm::current_error();
  const int code = static_cast<int>(error.kind);
  if (in_group() && !is_agreed(error)) end_group(describe(error), code);
  if (launched_rank() == 0) print(describe(error));
  return code;
}

}  // namespace safeshuffle::app
