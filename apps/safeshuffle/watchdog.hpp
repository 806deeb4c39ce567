// Time limits for calls into MPI that cannot be interrupted: the process ends instead.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace safeshuffle::app {

/// Calls `expired`, on a thread of its own, if it is not destroyed within `limit`. If no thread can
/// be started, nothing is watched.
class Watchdog {
 public:
  Watchdog(std::chrono::milliseconds limit, std::function<void()> expired);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch();

  std::chrono::milliseconds limit_;
  std::function<void()> expired_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace safeshuffle::app
