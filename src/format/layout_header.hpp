// Builds the headers of safetensors files that are to be written. Pure: no file access.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "safeshuffle/metadata.hpp"

namespace safeshuffle::format {

/// A tensor to be written.
struct TensorSpec {
  std::string name;
  DType dtype = DType::U8;
  Shape shape;
};

/// A header ready to be written, and the offsets of the tensors' data.
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

}  // namespace safeshuffle::format
