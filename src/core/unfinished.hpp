// Rollback of unfinished work that this process would leave behind if a signal ended it now.
#pragma once

#include <mutex>

namespace safeshuffle::core {

/// Held while the set of unfinished work, or its state, changes.
using UnfinishedLock = std::unique_lock<std::timed_mutex>;

/// Waits until no other thread holds the lock: for ever once `roll_back_unfinished` was called.
UnfinishedLock lock_unfinished();

/// Work to be undone if it is not finished. An implementation changes its state, and calls `track`
/// and `forget`, only while it holds the lock.
class Unfinished {
 public:
  Unfinished() = default;
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  /// Undoes it, as far as that is possible. Called with the lock held.
  virtual void roll_back() noexcept = 0;

  /// Whether its own thread is about to finish it or roll it back, together with other work.
  virtual bool is_settling() const noexcept { return false; }

 protected:
  ~Unfinished() = default;
  void track();
  void forget() noexcept;
};

/// Rolls back all unfinished work in this process, newest first. Work that is settling gets a
/// moment to do so by itself, so that files that belong together are all kept or all removed. Meant
/// for a program that is about to end because of a signal. Call it from an ordinary thread, not
/// from a signal handler: other threads that begin, finish or roll back work from then on wait for
/// ever. Returns after some seconds even if another thread hangs in the filesystem.
void roll_back_unfinished() noexcept;

}  // namespace safeshuffle::core
