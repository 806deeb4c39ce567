// A file that several processes fetch, each in parts.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "core/posix_file.hpp"

namespace safeshuffle::source {

/// Disjoint ranges of bytes, by their beginnings.
class ByteRanges {
 public:
  void add(std::uint64_t begin, std::uint64_t end);
  bool cover(std::uint64_t begin, std::uint64_t end) const;

  /// A line for each: "BEGIN END".
  std::string text() const;

  /// Lines that are no such ranges of a file of this size are left out: a process may have been
  /// killed while it wrote.
  void add(const std::string& text, std::uint64_t size);

 private:
  std::map<std::uint64_t, std::uint64_t> ends_;
};

/// The file, created if necessary, once no other process has it locked; locked until it is closed.
/// What such locks are held for must be short. Throws IoError.
core::PosixFile open_locked(const std::string& path);

/// Until it is complete, its bytes are in PATH.incomplete, and PATH.ranges says which are on the
/// disk. Then it appears as PATH; one that is there is only read, so others that could still write
/// to it, which lock it, come first. Thread-safe; functions throw IoError or std::system_error.
class PartialFile {
 public:
  PartialFile(std::string path, std::uint64_t size);

  /// Whether the bytes were on the disk when this was made.
  bool has(std::uint64_t offset, std::uint64_t bytes) const;
  void read(std::uint64_t offset, std::span<std::byte> to) const;

  void write(std::uint64_t offset, std::span<const std::byte> data);

  /// Waits until what was written is on the disk, and notes that. Returns whether the file has
  /// appeared. To be called once, last.
  bool finish();

 private:
  const std::string path_;
  const std::uint64_t size_;
  std::optional<core::PosixFile> file_;  // until it is complete, locked together with others
  ByteRanges there_;
  mutable std::mutex mutex_;  // guards the next member
  ByteRanges written_;
};

}  // namespace safeshuffle::source
