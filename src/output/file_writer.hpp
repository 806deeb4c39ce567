// Writing safetensors files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "core/new_files.hpp"
#include "format/layout_header.hpp"

namespace safeshuffle::output {

/// Writes one file that, as a NewFile, appears under its name complete or not at all. Not
/// thread-safe.
class FileWriter {
 public:
  /// Creates the file, as a NewFile, and writes the header. Throws IoError.
  FileWriter(std::filesystem::path path, format::HeaderLayout layout);

  const format::HeaderLayout& layout() const noexcept { return layout_; }

  /// Writes data of tensor `index` from `offset_in_tensor` on; from time to time, waits until
  /// storage has caught up. Throws IoError, also if the data extends past the end of the tensor.
  void write(std::size_t index, std::uint64_t offset_in_tensor, std::span<const std::byte> data);

  /// Extends the file to its full size without writing, leaving holes.
  void extend();

  /// Flushes to storage, so that `publish` is only a rename. Throws IoError, also if the file does
  /// not have its full size.
  void flush();

  /// As for NewFile, after `flush`.
  void publish() { file_.publish(); }
  void commit() { file_.commit(); }

 private:
  format::HeaderLayout layout_;
  core::NewFile file_;
  std::uint64_t unflushed_ = 0;
};

}  // namespace safeshuffle::output
