// Processes that may lock no memory, as with `ulimit -l 0`.
#pragma once

#include <array>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace safeshuffle::testing {

/// From now on, mlock(2) fails in this process, also if it is root's: it has no capabilities any
/// more. Returns whether that could be arranged.
inline bool forbid_locked_memory() {
  const rlimit none{0, 0};
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const std::array<__user_cap_data_struct, 2> nothing{};
  return ::setrlimit(RLIMIT_MEMLOCK, &none) == 0 &&
         ::syscall(SYS_capset, &header, nothing.data()) == 0;
}

}  // namespace safeshuffle::testing
