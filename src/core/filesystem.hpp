// Kinds of filesystems, as far as reading depends on them. Linux only, like the rest of core.
#pragma once

#include <cstdint>

namespace safeshuffle::core {

enum class Filesystem : std::uint8_t {
  local,    ///< on storage of this machine, or in memory; also any that is not known
  overlay,  ///< shows the files of others (overlayfs, as in containers), which cache what is read
  remote,   ///< on a network or in another process, or with a cache beside the page cache
};

/// That of an open file.
Filesystem filesystem_of(int descriptor) noexcept;

}  // namespace safeshuffle::core
