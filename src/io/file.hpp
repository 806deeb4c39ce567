// One open file. A file that is not the one described, or a short read, is an error.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "safeshuffle/metadata.hpp"

#include "io/path_recorder.hpp"
#include "source/source.hpp"

namespace safeshuffle::io {

/// Thread-safe. The constructor's arguments must outlive it.
class File {
 public:
  /// Opens and checks. With `direct`, reads bypass the page cache where the filesystem allows it.
  /// Throws IoError.
  File(const FileInfo& info, bool direct, const source::Source& source, PathRecorder& recorder);

  /// Fills `to` with the bytes from `offset` on. Throws IoError, also if the file ends early.
  void read(std::uint64_t offset, std::span<std::byte> to);

 private:
  std::unique_ptr<source::Handle> open_directly(const source::Source& source);
  std::size_t read_direct(std::uint64_t offset, std::span<std::byte> to);
  std::size_t read_some_directly(std::uint64_t offset, std::span<std::byte> to);
  std::size_t read_blocks(std::uint64_t offset, std::span<std::byte> to);
  std::size_t read_within_block(std::uint64_t offset, std::span<std::byte> to);

  const FileInfo& info_;
  PathRecorder& recorder_;
  const std::unique_ptr<source::Handle> buffered_;
  const std::unique_ptr<source::Handle> direct_;  // null: not requested, or refused when opening
  std::atomic<bool> direct_works_;
};

/// Throws IoError if the file at the path is no longer the one described.
void check_unchanged(const FileInfo& info, const source::Source& source);

}  // namespace safeshuffle::io
