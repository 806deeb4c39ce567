// safetensors header bytes → validated metadata. Pure: no file access.
// Format: 8 bytes little-endian header length N, N bytes of JSON, then the tensors' data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/metadata.hpp"

namespace safeshuffle::format {

/// Longest header accepted, as in the reference library.
inline constexpr std::uint64_t max_header_bytes = 100'000'000;

/// Bytes of the length prefix.
inline constexpr std::uint64_t prefix_bytes = 8;

/// A parsed header.
struct Header {
  std::uint64_t data_start = 0;                 ///< prefix + header length
  std::vector<TensorInfo> tensors;              ///< by (file_offset, end, name); `file` left 0
  std::map<std::string, std::string> metadata;  ///< `__metadata__`; empty if absent or null
};

/// Decodes the length prefix and checks it against the limit and the file's size.
/// Throws FormatError with `path` and the byte offset at fault.
std::uint64_t parse_header_length(std::string_view prefix, std::uint64_t file_size,
                                  const std::string& path);

/// Parses and validates the JSON text of a header (without prefix) of a file of `file_size` bytes.
/// One FormatErrc per kind of defect, thrown as FormatError with `path`, the tensor where known,
/// and the byte offset in the file: of the byte that is wrong, else of the entry's key. Stricter
/// than the reference library, which takes the last of several equal tensor names, ignores unknown
/// fields and leading white space, and also accepts serde's other notations of an entry or a dtype.
Header parse_header(std::string_view json, std::uint64_t file_size, const std::string& path);

}  // namespace safeshuffle::format
