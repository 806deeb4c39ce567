// Threads that nobody joins, because they may never come back.
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

/// Whether there are any. They may be in the midst of a library (NCCL, CUDA) whose static objects
/// `exit` would destroy: a program should then end by `_Exit`. Thread-safe.
bool has_detached_work() noexcept;

}  // namespace safeshuffle::core
