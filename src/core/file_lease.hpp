// Keeping an open file from shrinking while it is mapped. Linux only, like the rest of core.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

namespace safeshuffle::core {

/// A read lease (F_SETLEASE of fcntl(2)) on an open file, held while at least one Hold exists. The
/// kernel then makes every process that truncates the file or opens it for writing wait until the
/// lease is released, but no longer than /proc/sys/fs/lease-break-time, by default 45 s. So whoever
/// depends on the lease asks `is_intact` first, and then has that long. An open that must not block
/// (O_NONBLOCK) fails at once, but breaks the lease all the same. On overlayfs, this holds for
/// changes made through the overlay only.
/// No signal handler is needed, and no process is sent a signal that would end it. Thread-safe.
class FileLease {
 public:
  struct Release {
    void operator()(FileLease* lease) const noexcept { lease->release(); }
  };

  /// Must not outlive the FileLease.
  using Hold = std::unique_ptr<FileLease, Release>;

  /// `descriptor`, open for reading only, must stay open as long as this.
  explicit FileLease(int descriptor) noexcept : descriptor_(descriptor) {}
  FileLease(const FileLease&) = delete;
  FileLease& operator=(const FileLease&) = delete;

  /// Throws IoError with the reason if the kernel grants no lease: the caller does not own the
  /// file, a process has it open for writing, or the filesystem has no leases.
  Hold hold();

  /// While a Hold exists: whether no other process is waiting for its release, and the kernel has
  /// not ended the lease because one has waited too long.
  bool is_intact() const noexcept;

 private:
  void take();
  void release() noexcept;

  const int descriptor_;
  std::mutex mutex_;  // guards the lease itself, too
  std::size_t holders_ = 0;
};

}  // namespace safeshuffle::core
