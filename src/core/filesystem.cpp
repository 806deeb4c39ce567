#include "core/filesystem.hpp"

#include <algorithm>
#include <array>
#include <sys/vfs.h>

namespace safeshuffle::core {
namespace {

// From linux/magic.h and the sources of filesystems outside of the kernel.
constexpr std::uint32_t overlayfs = 0x794c7630;
constexpr std::array<std::uint32_t, 13> remote{
    0x00006969,  // NFS
    0xff534d42,  // CIFS
    0xfe534d42,  // SMB 2 and 3
    0x0000517b,  // SMB, before Linux 5.15
    0x65735546,  // FUSE, virtiofs too
    0x01021997,  // 9P
    0x00c36400,  // Ceph
    0x5346414f,  // AFS
    0x0bd00bd0,  // Lustre
    0x47504653,  // GPFS
    0x19830326,  // BeeGFS
    0xaad7aaea,  // PanFS
    0x2fc12fc1,  // ZFS, which caches in the ARC
};

}  // namespace

Filesystem filesystem_of(int descriptor) noexcept {
  struct statfs status {};
  if (::fstatfs(descriptor, &status) != 0) return Filesystem::local;
  const auto type = static_cast<std::uint32_t>(status.f_type);
  if (type == overlayfs) return Filesystem::overlay;
  const bool is_remote = std::ranges::find(remote, type) != remote.end();
  return is_remote ? Filesystem::remote : Filesystem::local;
}

}  // namespace safeshuffle::core
