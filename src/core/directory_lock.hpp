// The right to write into a directory, for one group of ranks at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/posix_file.hpp"
#include "core/unfinished.hpp"

namespace safeshuffle::core {

/// The lock of a directory: one on a hidden file in it, `.safeshuffle.lock`, which says who holds
/// it. The kernel ends the lock with the process that holds it; what that leaves is a file that
/// nobody has locked, which the next holder takes over, and removes in the end. Other users of the
/// directory are not kept out. Not thread-safe.
class DirectoryLock final : private Unfinished {
 public:
  /// Locks `directory` on behalf of `group`, a random name, unless another rank of the group has
  /// done so: the ranks of a node may or may not see the same directory as those of another. Throws
  /// ConfigError that names the holder if that is another group, and IoError.
  DirectoryLock(const std::filesystem::path& directory, const std::string& group,
                std::uint32_t rank);
  ~DirectoryLock();

  /// The rank of the group that has locked the directory: the same for all that see it.
  std::uint32_t holder() const noexcept { return holder_; }

 private:
  bool acquire(const std::string& group, std::uint32_t rank);
  void take_back() noexcept override;

  std::filesystem::path path_;
  std::uint32_t holder_ = 0;
  std::optional<PosixFile> file_;  // if it is held by this object
};

}  // namespace safeshuffle::core
