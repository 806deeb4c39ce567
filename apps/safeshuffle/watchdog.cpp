#include "watchdog.hpp"

#include <utility>

#include "safeshuffle/error.hpp"

#include "core/thread.hpp"

namespace safeshuffle::app {

Watchdog::Watchdog(std::chrono::milliseconds limit, std::function<void()> expired)
    : limit_(limit), expired_(std::move(expired)) {
  try {
    thread_ = core::start_thread([this] { watch(); });
  } catch (const MemoryError&) {  // the watched call will probably succeed
  }
}

Watchdog::~Watchdog() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  over_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  const bool in_time = over_.wait_for(lock, limit_, [this] { return is_over_; });
  if (!in_time) expired_();
}

}  // namespace safeshuffle::app
