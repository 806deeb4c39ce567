#include "core/file_lease.hpp"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <string>
#include <system_error>

#include "safeshuffle/error.hpp"

namespace safeshuffle::core {
namespace {

std::string reason(int code) {
  switch (code) {
    case EACCES:
      return "this user does not own it";
    case EAGAIN:
      return "a process has it open for writing";
    case EINVAL:
      return "its filesystem has no leases";
    default:
      return std::generic_category().message(code);
  }
}

[[noreturn]] void refuse(int code) {
  throw IoError(
      ErrorRecord{.code = code, .cause = "no lease to keep it from shrinking: " + reason(code)});
}

}  // namespace

FileLease::Hold FileLease::hold() {
  const std::scoped_lock lock(mutex_);
  if (holders_ == 0) take();
  ++holders_;
  return Hold(this);
}

// When a lease is broken, the kernel sends a signal to the owner of the descriptor: by default
// SIGIO, which ends a process without a handler. F_SETLEASE makes this process the owner, so only
// afterwards can the owner be removed; in between, the signal is SIGURG, which is ignored by
// default.
void FileLease::take() {
  if (::fcntl(descriptor_, F_SETSIG, SIGURG) == -1) refuse(errno);
  if (::fcntl(descriptor_, F_SETLEASE, F_RDLCK) == -1) refuse(errno);
  if (::fcntl(descriptor_, F_SETOWN, 0) == -1) {
    const int code = errno;
    static_cast<void>(::fcntl(descriptor_, F_SETLEASE, F_UNLCK));
    refuse(code);
  }
}

void FileLease::release() noexcept {
  const std::scoped_lock lock(mutex_);
  // Fails if the kernel has ended the lease already.
  if (--holders_ == 0) static_cast<void>(::fcntl(descriptor_, F_SETLEASE, F_UNLCK));
}

bool FileLease::is_intact() const noexcept {
  return ::fcntl(descriptor_, F_GETLEASE) == F_RDLCK;
}

}  // namespace safeshuffle::core
