#include "exit.hpp"

#include <chrono>
#include <cstdio>
#include <exception>
#include <new>
#include <thread>

#include <fmt/format.h>

#include "safeshuffle/error.hpp"

#include "launch.hpp"

namespace safeshuffle::app {
namespace {

constexpr int unexpected_error = 1;

void print(const char* message) {
  fmt::print(stderr, "safeshuffle: error: {}\n", message);
  std::fflush(stderr);
}

// Errors that ranks did not agree on: each rank has its own, and some may wait for ever.
bool is_lonely(ErrorKind kind) {
  return kind == ErrorKind::timeout || kind == ErrorKind::transport;
}

// Rank 0 speaks for all if it can; should it be the one that is stuck, the next rank does.
[[noreturn]] void end_group(const char* message, int code) {
  std::this_thread::sleep_for(std::chrono::milliseconds(300) * launched_rank());
  print(message);
  abort_group(code);
}

}  // namespace

int report_failure() {
  try {
    throw;
  } catch (const Error& error) {
    const int code = static_cast<int>(error.kind());
    if (is_lonely(error.kind()) && under_launcher()) end_group(error.what(), code);
    if (launched_rank() == 0) print(error.what());
    return code;
  } catch (const std::bad_alloc&) {
    end_group("out of memory", static_cast<int>(ErrorKind::memory));
  } catch (const std::exception& error) {
    end_group(error.what(), unexpected_error);
  }
}

}  // namespace safeshuffle::app
