// Processes that may not lock memory.
#pragma once

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace safeshuffle::testing {

/// From now on, this process may not lock memory, even if it is root's. Returns whether that could
/// be arranged.
inline bool forbid_locked_memory() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3]{};
  if (::syscall(SYS_capget, &header, sets) != 0) return false;
  sets[0].effective &= ~(1U << CAP_IPC_LOCK);
  if (::syscall(SYS_capset, &header, sets) != 0) return false;
  constexpr rlimit none{0, 0};
  return ::setrlimit(RLIMIT_MEMLOCK, &none) == 0;
}

}  // namespace safeshuffle::testing
