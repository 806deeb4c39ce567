// Files that appear under their names whole, or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "core/posix_file.hpp"
#include "core/unfinished.hpp"

namespace safeshuffle::core {

/// Writes a new file that has no name until it is published, so that nothing is left of it however
/// the process ends; where the filesystem has no such files, under a temporary name beside its
/// final one. Destroyed without `commit`, or taken back as what is unfinished, it leaves everything
/// as it was. A process that is killed while it publishes, or earlier where the file has a
/// temporary name, may leave hidden files beside the final name: `.NAME.tmp-*`, the new file, and,
/// until that is committed, `.NAME.old-*`, the earlier one (see leftovers.hpp). The next AtomicFile
/// of that name removes them, or gives the earlier file its name back; where that has another file
/// since, the earlier one is removed by the commit. What another process has put under the name
/// meanwhile is left alone. All functions throw IoErrors, which name the final path. Not
/// thread-safe; after an error of `publish` or `commit` it can only be destroyed.
class AtomicFile final : private Unfinished {
 public:
  /// Creates the new file. What has the final name must be a regular file or a symbolic link
  /// to one, which is replaced itself: no directory, no device, no pipe.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();

  const std::filesystem::path& path() const noexcept { return path_; }
  std::uint64_t size() const { return file_.identity().size; }

  /// Writes all of `data` at byte `offset`.
  void write(std::uint64_t offset, std::span<const std::byte> data);

  /// Cuts or extends the file to `size` bytes; what is new is a hole.
  void resize(std::uint64_t size);

  /// Waits until all that was written is on storage.
  void sync();

  /// Makes the file appear under its final name, on storage, in place of an earlier one. That is
  /// kept for the destructor to put back.
  void publish();

  bool published() const noexcept { return stage_ != Stage::writing; }

  /// Makes what `publish` did final; publishes first, if that has not been done, and fails only
  /// then.
  void commit();

 private:
  enum class Stage { writing, published, committed };

  struct Beginning;
  static Beginning begin(std::filesystem::path path);
  explicit AtomicFile(Beginning beginning);

  void take_back() noexcept override;
  bool is_settling() const noexcept override { return stage_ == Stage::published; }
  void set_aside();
  void withdraw() noexcept;

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // the name before the final one, if the file has any yet
  std::filesystem::path aside_;      // a name of the earlier file; empty: there is none
  PosixFile file_;
  bool synced_ = false;
  Stage stage_ = Stage::writing;
};

}  // namespace safeshuffle::core
