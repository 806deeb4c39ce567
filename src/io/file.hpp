// One open file: the one described, or an error; read exactly, or an error.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "safeshuffle/error.hpp"
#include "safeshuffle/metadata.hpp"

#include "io/journal.hpp"
#include "io/syscalls.hpp"

namespace safeshuffle::io {

/// Owns a descriptor; empty if negative.
class Descriptor {
 public:
  explicit Descriptor(int value) noexcept : value_(value) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int value() const noexcept { return value_; }
  explicit operator bool() const noexcept { return value_ >= 0; }

 private:
  int value_;
};

/// Thread-safe. What it is made of must outlive it.
class File {
 public:
  /// Opens and checks. With `direct`, reads bypass the page cache where filesystem and alignment
  /// allow. Throws IoError.
  File(const FileInfo& info, bool direct, Syscalls& syscalls, Journal& journal);

  /// Fills `to` with the bytes from `offset` on. Throws IoError, also if the file ends early.
  void read(std::uint64_t offset, std::span<std::byte> to);

 private:
  int open(int extra_flags);
  std::size_t read_direct(std::uint64_t offset, std::span<std::byte> to);
  void read_buffered(std::uint64_t offset, std::span<std::byte> to);
  ssize_t pread(const Descriptor& descriptor, std::span<std::byte> to, std::uint64_t offset);

  const FileInfo& info_;
  Syscalls& syscalls_;
  Journal& journal_;
  const Descriptor buffered_;
  const Descriptor direct_;  // empty: not asked for, or refused at opening
  std::atomic<bool> direct_works_;
};

/// Throws IoError if the file at the path is, by now, another one than described.
void check_unchanged(const FileInfo& info);

/// The error of a read of `file` at `offset`.
IoError read_error(const FileInfo& file, std::uint64_t offset, int code, const std::string& cause);

}  // namespace safeshuffle::io
