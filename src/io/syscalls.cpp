#include "io/syscalls.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace safeshuffle::io {

int Syscalls::open(const std::string& path, int flags) {
  return ::open(path.c_str(), flags);
}

ssize_t Syscalls::pread(int descriptor, std::byte* buffer, std::size_t bytes, off_t offset) {
  return ::pread(descriptor, buffer, bytes, offset);
}

Syscalls& system_calls() {
  static Syscalls calls;
  return calls;
}

}  // namespace safeshuffle::io
