// Polling without burning a core: spins briefly, then sleeps in steps that grow to a bound.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace safeshuffle::core {

/// One wait; not thread-safe. Call `pause` after each unsuccessful poll.
class Backoff {
 public:
  void pause() {
    if (spins_ < spin_limit) {
      ++spins_;
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(sleep_ * 2, sleep_limit);
  }

 private:
  static constexpr int spin_limit = 64;
  static constexpr std::chrono::microseconds sleep_limit{200};
  int spins_ = 0;
  std::chrono::microseconds sleep_{5};
};

}  // namespace safeshuffle::core
