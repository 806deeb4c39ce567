// Files by descriptor: what iostreams cannot do (sync to storage, refuse a FIFO without blocking on
// it, tell errno). All failures are IoErrors with the file, the offset where there is one, and
// errno.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/file_identity.hpp"

namespace safeshuffle::core {

/// Throws the IoError of `code` (an errno) for `path`; the cause reads "<action>: <text of code>".
[[noreturn]] void raise_errno(int code, const std::string& path, const std::string& action,
                              std::optional<std::uint64_t> offset = {});

/// Owner of one open regular file. Movable; reads are safe from several threads, writes to distinct
/// ranges too.
class PosixFile {
 public:
  /// Opens an existing file for reading; symlinks are followed.
  static PosixFile open(const std::string& path);

  /// Creates a file for writing that must not exist yet, with the permissions `mode` less the
  /// umask. Errors name `shown_as` instead of `path`.
  static PosixFile create(const std::string& path, std::string shown_as, unsigned mode = 0666);

  PosixFile(PosixFile&& other) noexcept;
  PosixFile& operator=(PosixFile&& other) noexcept;
  ~PosixFile();

  FileIdentity identity() const { return identify(descriptor_, path_); }

  /// Fills `destination` from byte `offset` of the file on; a file that ends before is an error.
  void read(std::uint64_t offset, std::span<std::byte> destination) const;

  /// Writes all of `data` at byte `offset`.
  void write(std::uint64_t offset, std::span<const std::byte> data) const;

  /// Cuts or extends the file to `size` bytes; what is new is a hole.
  void resize(std::uint64_t size) const;

  /// Waits until the content is on storage.
  void sync() const;

 private:
  PosixFile(int descriptor, std::string path) noexcept;

  int descriptor_ = -1;
  std::string path_;
};

/// Makes `from` appear as `to`, atomically, in place of what was there. Both lie in one directory.
void rename_file(const std::string& from, const std::string& to);

/// Waits until the names in `directory` are on storage, where the filesystem knows how.
void sync_directory(const std::string& directory);

/// The content of a regular file of at most `limit` bytes.
std::string read_text(const std::string& path, std::uint64_t limit);

}  // namespace safeshuffle::core
