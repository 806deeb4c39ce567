// safetensors files as byte strings, well-formed or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "format/layout_header.hpp"

namespace safeshuffle::testing {

/// The 8 bytes of a header length.
inline std::string header_length(std::uint64_t length) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(length >> shift);
  return bytes;
}

/// A file with this header text, valid or not, and `payload` bytes of data.
inline std::string raw_file(const std::string& json, std::size_t payload) {
  return header_length(json.size()) + json + std::string(payload, '\x2a');
}

/// A well-formed file of U8 tensors, one byte each.
inline std::string byte_tensors(const std::vector<std::string>& names) {
  std::vector<safeshuffle::format::TensorSpec> tensors;
  for (const std::string& name : names) {
    tensors.push_back({name, safeshuffle::DType::U8, {1}});
  }
  return safeshuffle::format::layout_header(tensors).bytes + std::string(names.size(), '\x2a');
}

}  // namespace safeshuffle::testing
