// The time during which at least one of several threads is busy.
#pragma once

#include <mutex>

#include "core/deadline.hpp"

namespace safeshuffle::io {

/// Thread-safe.
class BusyClock {
 public:
  /// One thread's work; counts from construction to destruction.
  class Work {
   public:
    explicit Work(BusyClock& clock) : clock_(clock) { clock_.enter(); }
    ~Work() { clock_.leave(); }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    BusyClock& clock_;
  };

  /// Forgets all work that has ended.
  void start_over() {
    const std::scoped_lock lock(mutex_);
    total_ = 0;
  }

  double seconds() const {
    const std::scoped_lock lock(mutex_);
    return active_ == 0 ? total_ : total_ + core::seconds_since(since_);
  }

 private:
  void enter() {
    const std::scoped_lock lock(mutex_);
    if (active_++ == 0) since_ = core::Clock::now();
  }

  void leave() {
    const std::scoped_lock lock(mutex_);
    if (--active_ == 0) total_ += core::seconds_since(since_);
  }

  mutable std::mutex mutex_;
  unsigned active_ = 0;
  double total_ = 0;
  core::Clock::time_point since_;
};

}  // namespace safeshuffle::io
