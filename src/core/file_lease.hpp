// Keeping an open file from shrinking while it is mapped. Linux only, like the rest of core.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

namespace safeshuffle::core {

/// A read lease (F_SETLEASE of fcntl(2)) on an open file, taken while at least one Hold exists.
/// Until it is released, the kernel keeps waiting whoever truncates the file or opens it for
/// writing, but for no longer than /proc/sys/fs/lease-break-time, by default 45 s: a holder that is
/// to finish safely asks `is_intact` first, and then has that long. Who asks that the open is not
/// to wait (O_NONBLOCK) is refused, and the lease is broken all the same.
/// Nothing is notified of that: no signal is sent that would need a handler. Thread-safe.
class FileLease {
 public:
  struct Release {
    void operator()(FileLease* lease) const noexcept { lease->release(); }
  };

  /// Must not outlive the lease.
  using Hold = std::unique_ptr<FileLease, Release>;

  /// `descriptor`, open for reading only, must stay open as long as this.
  explicit FileLease(int descriptor) noexcept : descriptor_(descriptor) {}
  FileLease(const FileLease&) = delete;
  FileLease& operator=(const FileLease&) = delete;

  /// Throws IoError with the reason if the kernel grants no lease: the caller does not own the
  /// file, a process has it open for writing, or the filesystem has no leases.
  Hold hold();

  /// While a Hold exists: whether nobody waits for its end, or has done so for too long.
  bool is_intact() const noexcept;

 private:
  void take();
  void release() noexcept;

  const int descriptor_;
  std::mutex mutex_;  // guards the lease itself, too
  std::size_t holders_ = 0;
};

}  // namespace safeshuffle::core
