// The descriptors and threads of the test's own process.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <thread>

#include "core/deadline.hpp"

namespace safeshuffle::testing {

inline std::ptrdiff_t entries_of(const char* directory) {
  return std::distance(std::filesystem::directory_iterator(directory), {});
}

inline std::ptrdiff_t open_descriptors() {
  return entries_of("/proc/self/fd");
}

inline std::ptrdiff_t running_threads() {
  return entries_of("/proc/self/task");
}

/// Whether the number of threads soon drops to `count`: /proc lists a thread for a moment after it
/// was joined, and detached ones take some time to end.
inline bool threads_come_down_to(std::ptrdiff_t count) {
  const core::Deadline deadline(std::chrono::seconds(5));
  while (running_threads() > count && !deadline.expired()) std::this_thread::yield();
  return running_threads() <= count;
}

}  // namespace safeshuffle::testing
