// What tells one version of a file from another.
#pragma once

#include <cstdint>
#include <string>

namespace safeshuffle::core {

/// Size and time of last modification; equal for two looks at a file that was not touched between.
struct FileIdentity {
  std::uint64_t size = 0;        ///< bytes
  std::int64_t modified_ns = 0;  ///< nanoseconds since the Unix epoch
  bool operator==(const FileIdentity&) const = default;
};

/// The regular file at `path`, symlinks followed. Throws IoError with errno.
FileIdentity identify(const std::string& path);

/// The same of an open descriptor; `path` is for the error only.
FileIdentity identify(int descriptor, const std::string& path);

}  // namespace safeshuffle::core
