// Access to stored bytes: listing, identifying and reading objects. Nothing else in the library
// opens the files of a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "safeshuffle/requests.hpp"

#include "core/file_identity.hpp"

namespace safeshuffle::source {

/// What a path names.
enum class Entry : std::uint8_t {
  none,
  directory,  ///< or a link to one
  other,      ///< also a dangling link: the error of opening it helps more than ignoring it
};

/// How bytes are read.
enum class Access : std::uint8_t {
  cached,
  direct,  ///< bypassing the page cache; offsets, lengths and addresses are multiples of
           ///< core::page_bytes
};

/// One object, opened for reading. Thread-safe.
class Handle {
 public:
  virtual ~Handle() = default;

  /// The identity of the object when it was opened.
  virtual const core::FileIdentity& identity() const noexcept = 0;

  /// Reads from byte `offset` on into the beginning of `to`; returns the number of bytes, 0 only at
  /// the end. Throws IoError with path, offset and errno, ESTALE if it is known to have changed.
  virtual std::size_t read_some(std::uint64_t offset, std::span<std::byte> to) const = 0;

  /// The file descriptor that `read_some` reads from by pread(2), for those who read from it by
  /// other calls; -1 if there is none.
  virtual int descriptor() const noexcept { return -1; }

  /// Whether the page cache is the only cache between this process and storage that is fast to
  /// reach: false for network filesystems and others with a cache of their own, and if unknown.
  virtual bool is_local() const noexcept { return false; }

  /// How many of `bytes` bytes from `offset` on need not be read from storage, because the page
  /// cache has them; counted in whole pages, but at most `bytes`. Empty if unknown.
  virtual std::optional<std::uint64_t> cached_bytes(std::uint64_t /*offset*/,
                                                    std::uint64_t /*bytes*/) const {
    return {};
  }

  /// An estimate for when that is unknown, from a few pages, which may be read into the page cache.
  /// Empty if there is none.
  virtual std::optional<std::uint64_t> sampled_cached_bytes(std::uint64_t /*offset*/,
                                                            std::uint64_t /*bytes*/) const {
    return {};
  }

  /// Whether some of these bytes are known to read as zeros without being on storage.
  virtual bool has_hole(std::uint64_t /*offset*/, std::uint64_t /*bytes*/) const noexcept {
    return false;
  }

  /// Asks the page cache to drop whole pages within this range. It keeps those that are dirty, in
  /// use, in one block with others outside of it, or without storage behind them: `cached_bytes`
  /// tells what remains.
  virtual void drop_cached(std::uint64_t /*offset*/, std::uint64_t /*bytes*/) const noexcept {}

  /// Asks the system to read nothing ahead of what is read through this handle.
  virtual void stop_readahead() const noexcept {}
};

/// Paths name directories, and in them objects, such as files. Thread-safe. All functions throw
/// IoError with path and errno.
class Source {
 public:
  virtual ~Source() = default;

  virtual Entry look_up(const std::string& path) const = 0;

  /// The names in a directory, sorted, without hidden ones: those are other programs' metadata and
  /// unfinished copies.
  virtual std::vector<std::string> names_in(const std::string& directory) const = 0;

  /// Whether objects have one name only, and every read proves that it is of the object that was
  /// opened, so that nobody needs to check.
  virtual bool is_remote(const std::string& /*path*/) const { return false; }

  /// The path of the same, as it is now, where a path may come to name something else, such as a
  /// branch.
  virtual std::string pinned(const std::string& path) const { return path; }

  /// Files of this machine with the same content, if there are such of all; otherwise `paths`.
  virtual std::vector<std::string> local(const std::vector<std::string>& paths) const {
    return paths;
  }

  /// The canonical path of an object that several paths may name.
  virtual std::string canonical(const std::string& path) const = 0;

  /// In how many places objects may be.
  virtual std::size_t places() const { return 1; }

  /// From now on, objects are looked up and opened in this place only; without one, in all. Those
  /// that are open are read from any.
  virtual void keep_to(std::optional<std::size_t> /*place*/) const noexcept {}

  /// While it is set, what would wait for a server fails.
  virtual void interrupt(bool /*is_set*/) const noexcept {}

  /// Up to now.
  virtual Requests requests() const { return {}; }

  /// There must be an object at the path.
  virtual core::FileIdentity identify(const std::string& path) const = 0;

  /// Throws IoError also if `access` is not possible; EINVAL or EOPNOTSUPP if that is because there
  /// are no direct reads here.
  virtual std::unique_ptr<Handle> open(const std::string& path, Access access) const = 0;
};

/// Fills `to` from byte `offset` of the object at `path` on; one that ends before is an IoError.
void read(const Handle& handle, const std::string& path, std::uint64_t offset,
          std::span<std::byte> to);

/// The content of an object of at most `limit` bytes.
std::string read_text(const Source& source, const std::string& path, std::uint64_t limit);

}  // namespace safeshuffle::source
