// A fixed set of worker threads with one queue.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace safeshuffle::core {

/// Runs tasks in the order of submission on `threads` workers. Thread-safe. Tasks must not throw.
/// The destructor drops tasks that have not started, and joins.
class ThreadPool {
 public:
  /// Throws MemoryError if the system cannot start so many threads.
  explicit ThreadPool(std::size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  void submit(std::function<void()> task);

  /// Runs task(0) … task(count - 1) on the workers and the calling thread; returns when all are
  /// done. Not to be called from a task.
  void parallel_for(std::size_t count, const std::function<void(std::size_t)>& task);

 private:
  void stop();
  void work();

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace safeshuffle::core
