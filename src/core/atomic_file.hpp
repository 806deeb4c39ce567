// Files that appear under their names complete, or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "core/posix_file.hpp"
#include "core/unfinished.hpp"

namespace safeshuffle::core {

/// Writes a new file that has no name until it is published, so that nothing is left of it however
/// the process ends; if the filesystem does not support this, it has a temporary name next to its
/// final one. If it is destroyed without `commit`, or rolled back as unfinished, everything is left
/// unchanged. A process that is killed while it publishes, or earlier if the file has a temporary
/// name, may leave hidden files next to the final name: `.NAME.tmp-*`, the new file, and, until
/// that is committed, `.NAME.old-*`, the earlier one (see leftovers.hpp). The next AtomicFile of
/// that name removes them, or restores the earlier file; if the name belongs to another file by
/// then, the commit removes the earlier one. A file that another process has created under the name
/// meanwhile is not touched. All functions throw IoErrors, which name the final path. Not
/// thread-safe; after an error of `publish` or `commit` it can only be destroyed.
class AtomicFile final : private Unfinished {
 public:
  /// Creates the new file. If the final name exists, it must be a regular file or a symbolic link
  /// to one, in which case the link itself is replaced; not a directory, device or pipe.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();

  const std::filesystem::path& path() const noexcept { return path_; }
  std::uint64_t size() const { return file_.identity().size; }

  /// Writes all of `data` at byte `offset`.
  void write(std::uint64_t offset, std::span<const std::byte> data);

  /// Truncates or extends the file to `size` bytes; an extension is a hole.
  void resize(std::uint64_t size);

  /// Waits until everything written is on storage.
  void sync();

  /// Makes the file appear under its final name, on storage, in place of an earlier one, which is
  /// kept so that the destructor can restore it.
  void publish();

  bool published() const noexcept { return stage_ != Stage::writing; }

  /// Makes what `publish` did final; publishes first if necessary, and can fail only in that case.
  void commit();

 private:
  enum class Stage { writing, published, committed };

  struct Beginning;
  static Beginning begin(std::filesystem::path path);
  explicit AtomicFile(Beginning beginning);

  void roll_back() noexcept override;
  bool is_settling() const noexcept override { return stage_ == Stage::published; }
  void set_aside();
  void withdraw() noexcept;

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // the name before the final one, if the file already has one
  std::filesystem::path aside_;      // a name of the earlier file; empty if there is none
  PosixFile file_;
  bool synced_ = false;
  Stage stage_ = Stage::writing;
};

}  // namespace safeshuffle::core
