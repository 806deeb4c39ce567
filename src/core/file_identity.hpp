// Distinguishes versions of a file.
#pragma once

#include <cstdint>
#include <string>

namespace safeshuffle::core {

/// Two identities taken on one node are equal if the file was neither modified nor replaced
/// between.
struct FileIdentity {
  std::uint64_t size = 0;        ///< bytes
  std::int64_t modified_ns = 0;  ///< nanoseconds since the Unix epoch
  std::uint64_t inode = 0;       ///< on its filesystem
  bool operator==(const FileIdentity&) const = default;
};

/// The regular file at `path`, symlinks followed. Throws IoError with errno.
FileIdentity identify(const std::string& path);

/// The same for an open descriptor; `path` is used in errors only.
FileIdentity identify(int descriptor, const std::string& path);

}  // namespace safeshuffle::core
