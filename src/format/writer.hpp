// Writing safetensors files that any safetensors library reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "safeshuffle/metadata.hpp"

#include "core/atomic_file.hpp"

namespace safeshuffle::format {

/// A tensor to be written.
struct TensorSpec {
  std::string name;
  DType dtype = DType::U8;
  Shape shape;
};

/// A header ready to be written, and where the data of each tensor goes.
struct HeaderLayout {
  std::string bytes;                       ///< length prefix + JSON + padding
  std::vector<std::uint64_t> file_offset;  ///< of each tensor, in the order given
  std::uint64_t file_size = 0;             ///< header and data
};

/// Lays tensors out in the order given. The JSON is padded with spaces until the data starts at a
/// multiple of `alignment` (1: none). Throws ConfigError on a duplicate name, a size that overflows
/// or does not fill whole bytes, or a header above the format's limit.
HeaderLayout layout_header(const std::vector<TensorSpec>& tensors,
                           const std::map<std::string, std::string>& metadata = {},
                           std::uint64_t alignment = 8);

/// Writes one file that appears under its name complete or, as an AtomicFile, not at all. Not
/// thread-safe.
class FileWriter {
 public:
  /// Creates the file, as an AtomicFile, and writes the header. Throws IoError.
  FileWriter(std::filesystem::path path, HeaderLayout layout);

  const HeaderLayout& layout() const noexcept { return layout_; }

  /// Writes data of tensor `index` from `offset_in_tensor` on; now and then waits until storage has
  /// caught up. Throws IoError, also if the data goes past the end of the tensor.
  void write(std::size_t index, std::uint64_t offset_in_tensor, std::span<const std::byte> data);

  /// Extends the file to its full size without writing, leaving holes.
  void extend();

  /// Flushes to storage, so that `publish` is only a rename. Throws IoError, also if the file has
  /// not reached its full size.
  void flush();

  /// As of AtomicFile, of a file that has its full size.
  void publish();
  void commit();

 private:
  HeaderLayout layout_;
  core::AtomicFile file_;
  std::uint64_t unflushed_ = 0;
};

}  // namespace safeshuffle::format
