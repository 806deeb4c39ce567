// What the page cache has of files, for tests on the filesystem of the temporary directory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/locked_mapping.hpp"
#include "core/posix_file.hpp"

namespace safeshuffle::testing {

/// Bytes of a file in the page cache.
inline std::uint64_t cached_bytes_of(const std::string& path) {
  const core::PosixFile file = core::PosixFile::open(path);
  return file.cached_bytes(0, file.identity().size).value_or(0);
}

/// Returns whether nothing of the file is left in the page cache: some filesystems keep all.
inline bool make_cold(const std::string& path) {
  const core::PosixFile file = core::PosixFile::open(path);
  file.sync();
  file.drop_cached(0, file.identity().size);
  return file.cached_bytes(0, file.identity().size) == 0;
}

/// Reads a range into the page cache, and nothing ahead of it.
inline void make_warm(const std::string& path, std::uint64_t offset, std::uint64_t bytes) {
  const core::PosixFile file = core::PosixFile::open(path);
  file.stop_readahead();
  std::vector<std::byte> buffer(bytes);
  file.read(offset, buffer);
}

/// A range, not empty, that stays in the page cache: systems take pages away after a moment, even
/// if memory is plentiful and a process has mapped them. Those that are locked cannot be dropped.
class WarmRange {
 public:
  WarmRange(const std::string& path, std::uint64_t offset, std::uint64_t bytes) {
    make_warm(path, offset, bytes);
    const core::PosixFile file = core::PosixFile::open(path);
    file.stop_readahead();
    locked_.emplace(file.descriptor(), offset, bytes);
  }

 private:
  std::optional<core::LockedMapping> locked_;
};

}  // namespace safeshuffle::testing
