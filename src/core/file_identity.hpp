// What tells one version of a file from another.
#pragma once

#include <cstdint>
#include <string>

namespace safeshuffle::core {

/// Equal for two looks, from one node, at a file that was neither touched nor replaced between.
struct FileIdentity {
  std::uint64_t size = 0;        ///< bytes
  std::int64_t modified_ns = 0;  ///< nanoseconds since the Unix epoch
  std::uint64_t inode = 0;       ///< on its filesystem
  bool operator==(const FileIdentity&) const = default;
};

/// The regular file at `path`, symlinks followed. Throws IoError with errno.
FileIdentity identify(const std::string& path);

/// The same of an open descriptor; `path` is for the error only.
FileIdentity identify(int descriptor, const std::string& path);

}  // namespace safeshuffle::core
