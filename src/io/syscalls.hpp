// The system calls of the posix reader: a seam at which tests put faults.
#pragma once

#include <cstddef>
#include <string>
#include <sys/types.h>

namespace safeshuffle::io {

/// As the calls of the same names, errno included. Thread-safe.
class Syscalls {
 public:
  virtual ~Syscalls() = default;
  virtual int open(const std::string& path, int flags);
  virtual ssize_t pread(int descriptor, std::byte* buffer, std::size_t bytes, off_t offset);
};

/// The real ones.
Syscalls& system_calls();

}  // namespace safeshuffle::io
