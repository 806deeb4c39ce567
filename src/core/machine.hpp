// What kind of machine this is, and which filesystem a file is on. Linux only, like the rest of
// core.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace safeshuffle::core {

/// The CPU's model; empty if unknown.
std::string cpu_model();

/// CPUs that are online, whatever this process may run on.
unsigned online_cpus() noexcept;

/// Physical memory in bytes.
std::uint64_t memory_bytes() noexcept;

/// The part of it that programs can use without swapping, page cache included; 0 if unknown.
std::uint64_t available_memory_bytes();

/// The kernel's release, such as "6.1.0-18-amd64".
std::string kernel_release();

/// A mounted filesystem.
struct Mount {
  std::string type = "unknown";    ///< such as "ext4", "nfs4", "tmpfs"
  std::string device = "unknown";  ///< such as "/dev/nvme0n1p1", "server:/export", "tmpfs"
};

/// That of the file at `path`; unknown if the system does not tell.
Mount mount_of(const std::string& path);

/// The one with this number in a text like /proc/self/mountinfo. Pure.
Mount find_mount(std::string_view mountinfo, std::string_view number);

}  // namespace safeshuffle::core
