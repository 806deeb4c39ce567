// Time limits of waits for peers.
#pragma once

#include <algorithm>
#include <chrono>

namespace safeshuffle::core {

using Clock = std::chrono::steady_clock;

/// Restartable stall detector: expired when `limit` has passed since construction or `restart`. A
/// limit of more than a year is reduced to a year, so that the clock cannot overflow.
class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds limit)
      : limit_(std::min<std::chrono::milliseconds>(limit, std::chrono::hours(24 * 365))) {
    restart();
  }
  void restart() noexcept { due_ = Clock::now() + limit_; }
  bool expired() const noexcept { return Clock::now() >= due_; }
  std::chrono::milliseconds limit() const noexcept { return limit_; }

  /// Time left, rounded up; 0 once expired.
  std::chrono::milliseconds remaining() const noexcept {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(due_ - Clock::now());
    return std::max(left, std::chrono::milliseconds(0));
  }

 private:
  std::chrono::milliseconds limit_;
  Clock::time_point due_;
};

inline double seconds_since(Clock::time_point start) noexcept {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace safeshuffle::core
