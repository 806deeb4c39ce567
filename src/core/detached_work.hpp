// Threads that are not joined, because they may never return.
#pragma once

namespace safeshuffle::core {

/// Counts one such thread for as long as this lives.
class DetachedWork {
 public:
  DetachedWork() noexcept;
  ~DetachedWork();
  DetachedWork(const DetachedWork&) = delete;
  DetachedWork& operator=(const DetachedWork&) = delete;
};

/// Whether there are any. They may be inside a library (NCCL, CUDA) whose static objects `exit`
/// would destroy: the program should then end with `_Exit`. Thread-safe.
bool has_detached_work() noexcept;

}  // namespace safeshuffle::core
