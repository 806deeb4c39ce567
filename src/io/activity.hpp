// What was at work on a batch, and when.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/deadline.hpp"

namespace safeshuffle::io {

enum class Worker : std::uint8_t {
  posix,   ///< reader threads
  uring,   ///< io_uring
  gds,     ///< GPUDirect Storage
  copies,  ///< what copies to the device
};
inline constexpr std::size_t worker_count = 4;

/// From the beginning of the first read or copy of a worker to the end of the last.
struct Activity {
  Worker worker = Worker::posix;
  core::Clock::time_point begin;
  core::Clock::time_point end;
};

/// One for each worker. Not thread-safe.
class Activities {
 public:
  void add(const Activity& added) noexcept {
    auto& activity = by_worker_[static_cast<std::size_t>(added.worker)];
    if (!activity) activity = added;
    activity->begin = std::min(activity->begin, added.begin);
    activity->end = std::max(activity->end, added.end);
  }

  /// Ascending.
  std::vector<Activity> list() const {
    std::vector<Activity> list;
    for (const auto& activity : by_worker_) {
      if (activity) list.push_back(*activity);
    }
    return list;
  }

 private:
  std::array<std::optional<Activity>, worker_count> by_worker_;
};

}  // namespace safeshuffle::io
