#include "core/thread_pool.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <utility>

#include "core/thread.hpp"

namespace safeshuffle::core {

ThreadPool::ThreadPool(std::size_t threads) {
  workers_.reserve(threads);
  try {
    for (std::size_t i = 0; i < threads; ++i) {
      workers_.push_back(start_thread([this] { work(); }));
    }
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    tasks_.clear();
  }
  ready_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::submit(std::function<void()> task) {
  {
    const std::scoped_lock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  ready_.notify_one();
}

void ThreadPool::parallel_for(std::size_t count, const std::function<void(std::size_t)>& task) {
  if (count == 0) return;
  // Shared with helpers that may start only after the loop has ended; they then find no index left.
  struct Loop {
    std::atomic<std::size_t> next{0};
    std::atomic<std::size_t> finished{0};
  };
  const auto loop = std::make_shared<Loop>();
  const auto run = [loop, count, &task] {
    for (std::size_t i = loop->next++; i < count; i = loop->next++) {
      task(i);
      if (++loop->finished == count) loop->finished.notify_all();
    }
  };
  const std::size_t helpers = std::min(workers_.size(), count - 1);
  try {
    for (std::size_t i = 0; i < helpers; ++i) submit(run);
  } catch (const std::bad_alloc&) {
    // The helpers that were submitted must be waited for, as they use `task`; the rest are skipped.
  }
  run();
  for (std::size_t done = loop->finished; done != count; done = loop->finished) {
    loop->finished.wait(done);
  }
}

void ThreadPool::work() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace safeshuffle::core
