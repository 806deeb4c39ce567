// Processes that may lock little memory.
#pragma once

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace safeshuffle::testing {

/// From now on, this process may lock so many bytes, even if it is root's. Returns whether that
/// could be arranged.
inline bool limit_locked_memory(rlim_t bytes) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3]{};
  if (::syscall(SYS_capget, &header, sets) != 0) return false;
  sets[0].effective &= ~(1U << CAP_IPC_LOCK);
  if (::syscall(SYS_capset, &header, sets) != 0) return false;
  const rlimit limit{bytes, bytes};
  return ::setrlimit(RLIMIT_MEMLOCK, &limit) == 0;
}

}  // namespace safeshuffle::testing
