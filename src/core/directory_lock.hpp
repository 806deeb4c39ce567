// The right to write into a directory, for one group of ranks at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/posix_file.hpp"
#include "core/unfinished.hpp"

namespace safeshuffle::core {

/// Locks a directory by locking a hidden file in it, `.safeshuffle.lock`, which names the holder.
/// The kernel releases the lock when the holding process ends; the unlocked file that may be left
/// is taken over, and finally removed, by the next holder. Other users of the directory are not
/// locked out. Not thread-safe.
class DirectoryLock final : private Unfinished {
 public:
  /// Locks `directory` on behalf of `group`, a random name, unless another rank of the group has
  /// already done so: ranks on different nodes may or may not see the same directory. Throws
  /// ConfigError that names the holder if that is another group, and IoError.
  DirectoryLock(const std::filesystem::path& directory, const std::string& group,
                std::uint32_t rank);
  ~DirectoryLock();

  /// The rank of the group that has locked the directory: the same for all that see it.
  std::uint32_t holder() const noexcept { return holder_; }

 private:
  bool acquire(const std::string& group, std::uint32_t rank);
  void roll_back() noexcept override;

  std::filesystem::path path_;
  std::uint32_t holder_ = 0;
  std::optional<PosixFile> file_;  // set if this object holds the lock
};

}  // namespace safeshuffle::core
