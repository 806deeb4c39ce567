// Starting threads.
#pragma once

#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "safeshuffle/error.hpp"

namespace safeshuffle::core {

/// What `start` returns. Throws MemoryError if the system cannot start a thread.
template <typename Start>
auto require_thread(Start start) {
  try {
    return start();
  } catch (const std::system_error& error) {
    throw MemoryError("cannot start a thread: " + error.code().message());
  }
}

/// A thread that calls `run`. Throws MemoryError.
template <typename Run>
std::thread start_thread(Run run) {
  return require_thread([&] { return std::thread(std::move(run)); });
}

/// The result of `run` on a thread of its own; destroying it waits for that. Throws MemoryError.
template <typename Run>
auto start_async(Run run) {
  return require_thread([&] { return std::async(std::launch::async, std::move(run)); });
}

}  // namespace safeshuffle::core
