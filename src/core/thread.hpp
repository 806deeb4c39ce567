// Starting threads.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "safeshuffle/error.hpp"

namespace safeshuffle::core {

/// A thread that calls `run`. Throws MemoryError if the system cannot start it.
template <typename Run>
std::thread start_thread(Run run) {
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& error) {
    throw MemoryError("cannot start a thread: " + error.code().message());
  }
}

}  // namespace safeshuffle::core
