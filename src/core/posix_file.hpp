// Files by descriptor: what iostreams cannot do (sync to storage, refuse a FIFO without blocking on
// it, tell errno). All failures are IoErrors that name the file and, where they apply, offset and
// errno.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/descriptor.hpp"
#include "core/file_identity.hpp"

namespace safeshuffle::core {

/// Owner of one open regular file. Movable; reads are safe from several threads, writes to distinct
/// ranges too.
class PosixFile {
 public:
  /// Opens an existing file for reading, with additional `flags` of open(2); symlinks are followed.
  static PosixFile open(const std::string& path, int flags = 0);

  /// Creates a file for writing, which must not exist. Errors name `shown_as` instead of `path`.
  static PosixFile create(const std::string& path, std::string shown_as);

  /// Opens a file for reading and writing, and creates it if necessary. Symbolic links are refused.
  static PosixFile open_or_create(const std::string& path);

  FileIdentity identity() const { return identify(descriptor_.value(), path_); }

  /// That when the file was opened for reading.
  const FileIdentity& identity_at_first() const noexcept { return identity_; }

  /// Whether `path` names this very file.
  bool has_name(const std::string& path) const noexcept;

  /// Fills `destination` with the bytes from `offset` on; a file that ends too early is an error.
  void read(std::uint64_t offset, std::span<std::byte> destination) const;

  /// Reads the bytes from `offset` on into the beginning of `destination`; returns their number, 0
  /// only at the end of the file.
  std::size_t read_some(std::uint64_t offset, std::span<std::byte> destination) const;

  /// Open as long as this.
  int descriptor() const noexcept { return descriptor_.value(); }

  /// Writes all of `data` at byte `offset`.
  void write(std::uint64_t offset, std::span<const std::byte> data) const;

  /// Truncates or extends the file to `size` bytes; an extension is a hole.
  void resize(std::uint64_t size) const;

  /// Waits until the content is on storage.
  void sync() const;

  /// Locks a file that is open for writing; false if it is already locked, in this process, another
  /// one, or on another node of a network filesystem. The lock is advisory, and ends with this
  /// object or with the process, even if that is killed. Throws IoError if the filesystem has no
  /// locks.
  bool try_lock() const;

  /// Locks a file together with others that do so; `try_lock` by one of them then takes it alone,
  /// once it is the only one. Throws IoError, also if it is locked otherwise.
  void lock_shared() const;

 private:
  PosixFile(Descriptor descriptor, std::string path) noexcept;

  Descriptor descriptor_;
  std::string path_;
  FileIdentity identity_;
};

/// Whether the file at `path` is not locked; false also if that cannot be determined.
bool is_unlocked(const std::string& path) noexcept;

/// Waits until the names in `directory` are on storage, if the filesystem supports that.
void sync_directory(const std::string& directory);

/// The content of a regular file of at most `limit` bytes.
std::string read_text(const std::string& path, std::uint64_t limit);

}  // namespace safeshuffle::core
