// What this process has begun, and would leave behind if a signal ended it now.
#pragma once

#include <mutex>

namespace safeshuffle::core {

/// Held while what is unfinished changes.
using UnfinishedLock = std::unique_lock<std::timed_mutex>;

/// Waits until nobody else holds the lock: for ever once `take_back_unfinished` was called.
UnfinishedLock lock_unfinished();

/// Something to be undone if it is not finished. An implementation changes its state, and calls
/// `track` and `forget`, only with the lock held.
class Unfinished {
 public:
  Unfinished() = default;
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  /// Undoes it, as far as that is possible. Called with the lock held.
  virtual void take_back() noexcept = 0;

  /// Whether it is about to be finished or taken back, by its own thread, together with others.
  virtual bool is_settling() const noexcept { return false; }

 protected:
  ~Unfinished() = default;
  void track();
  void forget() noexcept;
};

/// Takes back all that is unfinished in this process, the newest first. What is settling gets a
/// moment to do so by itself, so that files that belong together have the same fate. Meant to be
/// called by a program that is about to end itself because of a signal, from an ordinary thread,
/// not from the signal's handler: other threads that begin, finish or take back anything from then
/// on wait for ever. Gives up after some seconds if another thread hangs in the filesystem.
void take_back_unfinished() noexcept;

}  // namespace safeshuffle::core
