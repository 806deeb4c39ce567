// Files by descriptor: what iostreams cannot do (sync to storage, refuse a FIFO without blocking on
// it, tell errno). All failures are IoErrors that name the file and, where they apply, offset and
// errno.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/descriptor.hpp"
#include "core/file_identity.hpp"

namespace safeshuffle::core {

/// Owner of one open regular file. Movable; reads are safe from several threads, writes to distinct
/// ranges too.
class PosixFile {
 public:
  /// Opens an existing file for reading, with more `flags` of open(2); symlinks are followed.
  static PosixFile open(const std::string& path, int flags = 0);

  /// Creates a file for writing that must not exist yet. Errors name `shown_as` instead of `path`.
  static PosixFile create(const std::string& path, std::string shown_as);

  /// Creates a file for writing that has no name in `directory` until `link_as` gives it one: the
  /// system frees it with its last descriptor, however the process ends. Errors are those of
  /// `create`. Empty where the filesystem or the system has no such files.
  static std::optional<PosixFile> create_unnamed(const std::string& directory,
                                                 std::string shown_as);

  /// Opens a file for reading and writing, which is created if there is none. Symbolic links are
  /// refused.
  static PosixFile open_or_create(const std::string& path);

  FileIdentity identity() const { return identify(descriptor_.value(), path_); }

  /// Whether `path` names this very file.
  bool has_name(const std::string& path) const noexcept;

  /// Gives a file of `create_unnamed` its first name, in the directory it was created in. What has
  /// that name already is not replaced.
  void link_as(const std::string& path) const;

  /// Fills `destination` from byte `offset` of the file on; a file that ends before is an error.
  void read(std::uint64_t offset, std::span<std::byte> destination) const;

  /// Reads from byte `offset` on into the beginning of `destination`; returns the number of bytes,
  /// 0 only at the end.
  std::size_t read_some(std::uint64_t offset, std::span<std::byte> destination) const;

  /// Writes all of `data` at byte `offset`.
  void write(std::uint64_t offset, std::span<const std::byte> data) const;

  /// Cuts or extends the file to `size` bytes; what is new is a hole.
  void resize(std::uint64_t size) const;

  /// Waits until the content is on storage.
  void sync() const;

  /// Locks a file that is open for writing; false if somebody else has locked it, in this process,
  /// another one, or on another node of a network filesystem. The lock binds only those who ask for
  /// it, and ends with `unlock`, with this object or with the process, even if that is killed.
  /// Throws IoError where the filesystem has no locks.
  bool try_lock() const;
  void unlock() const noexcept;

 private:
  PosixFile(Descriptor descriptor, std::string path) noexcept;

  Descriptor descriptor_;
  std::string path_;
};

/// Throws the IoError of creating a file at `path` where no file can have that name, such as one
/// that is too long. It names `shown_as` instead of `path`.
void check_name(const std::string& path, const std::string& shown_as);

/// Makes `from` appear as `to`, atomically, in place of what was there. Both lie in one directory.
void rename_file(const std::string& from, const std::string& to);

/// Whether nobody has locked the file at `path`; false also if that cannot be found out.
bool is_unlocked(const std::string& path) noexcept;

/// Waits until the names in `directory` are on storage, where the filesystem knows how.
void sync_directory(const std::string& directory);

/// The content of a regular file of at most `limit` bytes.
std::string read_text(const std::string& path, std::uint64_t limit);

}  // namespace safeshuffle::core
