// One open file: the one described, or an error; read exactly, or an error.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "safeshuffle/metadata.hpp"

#include "core/descriptor.hpp"
#include "io/path_recorder.hpp"
#include "io/syscalls.hpp"

namespace safeshuffle::io {

/// Thread-safe. What it is made of must outlive it.
class File {
 public:
  /// Opens and checks. With `direct`, reads bypass the page cache where the filesystem allows it.
  /// Throws IoError.
  File(const FileInfo& info, bool direct, Syscalls& syscalls, PathRecorder& recorder);

  /// Fills `to` with the bytes from `offset` on. Throws IoError, also if the file ends early.
  void read(std::uint64_t offset, std::span<std::byte> to);

 private:
  core::Descriptor open(int extra_flags);
  std::size_t read_direct(std::uint64_t offset, std::span<std::byte> to);
  std::size_t read_some_directly(std::uint64_t offset, std::span<std::byte> to);
  std::size_t read_blocks(std::uint64_t offset, std::span<std::byte> to);
  std::size_t read_within_block(std::uint64_t offset, std::span<std::byte> to);
  void read_buffered(std::uint64_t offset, std::span<std::byte> to);
  ssize_t pread(const core::Descriptor& descriptor, std::span<std::byte> to, std::uint64_t offset);

  const FileInfo& info_;
  Syscalls& syscalls_;
  PathRecorder& recorder_;
  const core::Descriptor buffered_;
  const core::Descriptor direct_;  // empty: not asked for, or refused at opening
  std::atomic<bool> direct_works_;
};

/// Throws IoError if the file at the path is, by now, another one than described.
void check_unchanged(const FileInfo& info);

}  // namespace safeshuffle::io
