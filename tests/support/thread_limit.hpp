// Makes the system start no more threads.
#pragma once

#include <cstddef>
#include <pthread.h>

namespace safeshuffle::testing {

/// While it exists, no thread can be started in this process, because no stack can be allocated.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t impossible = before_;
    pthread_attr_setstacksize(&impossible, std::size_t{1} << 60);
    pthread_setattr_default_np(&impossible);
  }
  ~NoMoreThreads() { pthread_setattr_default_np(&before_); }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

}  // namespace safeshuffle::testing
