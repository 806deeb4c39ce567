// Files and directories that are new: nobody sees them incomplete.
//
// A file is written under a hidden name beside its place, `.NAME.safeshuffle-new-XXXXXXXX`, and
// renamed to NAME when it is complete. What an error leaves unfinished is removed by destructors;
// what a signal would leave, by `roll_back_unfinished`; what a killed process has left, by the next
// writer of the same place, which sees by a lock that no running process, on any node, owns it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/posix_file.hpp"

namespace safeshuffle::core {

/// Something on disk to be removed if it is not finished.
class Unfinished {
 public:
  Unfinished() = default;
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  /// As far as possible. Called with the lock held.
  virtual void roll_back() noexcept = 0;

  /// Whether its own thread is about to finish it or roll it back, together with others.
  virtual bool is_settling() const noexcept { return false; }

 protected:
  using Lock = std::unique_lock<std::timed_mutex>;

  ~Unfinished() = default;

  /// Held while anything unfinished changes. Waits for ever once `roll_back_unfinished` was called.
  static Lock hold();

  /// With the lock held: whether `roll_back_unfinished` is to roll this back.
  void track();
  void forget() noexcept;

  /// For destructors: rolls back and forgets.
  void abandon() noexcept;
};

/// Rolls back everything unfinished in this process, newest first. What is settling gets a moment
/// to do so by itself, so that files that belong together are all kept or all removed. Meant for a
/// program that is about to end because of a signal. Call it from an ordinary thread, not from a
/// signal handler: other threads that begin, finish or roll back anything from then on wait for
/// ever. Returns after some seconds even if another thread hangs in the filesystem.
void roll_back_unfinished() noexcept;

/// A new file, which may replace an earlier one. If it is destroyed without `commit`, or rolled
/// back, everything is left unchanged; a file that another process has created under the name
/// meanwhile is not touched. A process that is killed may leave hidden files: the new one and, from
/// `publish` to `commit`, the earlier one, `.NAME.safeshuffle-old-XXXXXXXX`. All functions throw
/// IoErrors, which name the final path. Not thread-safe; after an error of `publish` or `commit` it
/// can only be destroyed.
class NewFile final : private Unfinished {
 public:
  /// Removes leftovers of the file, then creates the new one. If the final name exists, it must be
  /// a regular file or a symbolic link to one, in which case the link itself is replaced; not a
  /// directory, device or pipe.
  explicit NewFile(std::filesystem::path path);
  ~NewFile() { abandon(); }

  const std::filesystem::path& path() const noexcept { return path_; }

  /// To be written; until `commit`.
  const PosixFile& content() const noexcept { return *file_; }

  /// Makes the file appear under its final name, on storage, in place of an earlier one, which is
  /// kept so that the destructor can restore it.
  void publish();

  /// Makes what `publish` did final; publishes first if necessary, and can fail only in that case.
  void commit();

 private:
  enum class Stage { writing, published, committed };

  void roll_back() noexcept override;
  bool is_settling() const noexcept override { return stage_ == Stage::published; }
  void set_aside();

  std::filesystem::path path_;
  std::filesystem::path hidden_;   // the name until it is published
  std::filesystem::path earlier_;  // a hidden name of the earlier file; empty if there is none
  std::optional<PosixFile> file_;  // locked; closed when committed
  Stage stage_ = Stage::writing;
};

/// The directory of `path`; "." if the path has none.
std::filesystem::path directory_of(const std::filesystem::path& path);

/// Selects files by name.
using NameFilter = std::function<bool(const std::string& name)>;

/// Removes what killed writers left in `directory` of the files that `chosen` accepts. An earlier
/// file gets its name back if nothing has it. Files whose writer is still running, on any node, and
/// files whose locks cannot be examined are not touched.
void remove_leftovers(const std::filesystem::path& directory, const NameFilter& chosen) noexcept;

/// Those of the path and its parents that do not exist: children before parents.
std::vector<std::filesystem::path> missing_directories(std::filesystem::path path);

/// A directory for new files. If it is destroyed or rolled back, it removes those of `missing`, the
/// directories to be created, that are still empty. Not thread-safe.
class NewDirectory final : private Unfinished {
 public:
  /// Ensures that the directory exists. Processes that do so together should all determine what is
  /// missing before the first of them creates it: the last one then finds it empty. Throws IoError.
  NewDirectory(std::filesystem::path path, std::vector<std::filesystem::path> missing);
  explicit NewDirectory(const std::filesystem::path& path)
      : NewDirectory(path, missing_directories(path)) {}
  ~NewDirectory() { abandon(); }

  /// Locks the directory until destruction on behalf of `group`, a random name, unless another rank
  /// of the group has already done so: ranks on different nodes may or may not see the same
  /// directory. Returns the rank that has, the same for all that see the directory. What is locked
  /// is a hidden file, `.safeshuffle.lock`, which names the holder. The kernel releases the lock
  /// when the holding process ends; the unlocked file that may be left is taken over, and finally
  /// removed, by the next holder. Other users of the directory are not locked out. Throws
  /// ConfigError that names the holder if that is another group, and IoError.
  std::uint32_t lock(const std::string& group, std::uint32_t rank);

 private:
  bool acquire(const std::string& group, std::uint32_t rank);
  void roll_back() noexcept override;

  std::filesystem::path path_;
  std::vector<std::filesystem::path> missing_;
  std::string lock_path_;
  std::optional<PosixFile> lock_;  // set if this object holds the lock
};

}  // namespace safeshuffle::core
