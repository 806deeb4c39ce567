// Layouts: the structure of a real model's checkpoint, without its data (docs/layouts.md).
//
// A layout has the names, types and shapes of all tensors, the files they are in, and how the
// headers of those files are written, so that a checkpoint of exactly the same form can be made.
// All types here are plain values; the functions are pure except for reading a layout file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/layout_header.hpp"

namespace safeshuffle::synth {

/// One file of a layout.
struct LayoutFile {
  std::string name;                         ///< without directory
  std::optional<std::uint64_t> size;        ///< true size in bytes, if known
  std::vector<format::TensorSpec> tensors;  ///< in the order of their data
};

/// A whole checkpoint without its data.
struct Layout {
  std::string config;                                             ///< text of config.json
  std::map<std::string, std::string> metadata{{"format", "pt"}};  ///< `__metadata__` of each header
  std::uint64_t alignment = 8;  ///< of the data's start in each file, in bytes
  std::vector<LayoutFile> files;
};

/// Reads a layout: the name of a built-in one, or else the path of a JSON file (docs/layouts.md).
/// With a `scale` below 1 it has about that part of the bytes: the same files, tensors and layers,
/// but narrower. Each extent remains a multiple of every number up to 64 that divides the original,
/// so whatever can be split for a group of that size still can. Widths therefore change in steps
/// and have a minimum; file sizes are dropped. Throws ConfigError if there is no such layout, if it
/// is malformed, or unless 0 < scale <= 1.
Layout load_layout(std::string_view name_or_path, double scale = 1);

/// Reads a layout from JSON text; `origin` is used in messages. Throws ConfigError.
Layout parse_layout(std::string_view json, const std::string& origin, double scale = 1);

/// The names of the layouts that are part of the program, in alphabetical order.
std::vector<std::string> builtin_layouts();

/// The header of a file, padded with spaces until the file has its true size. Throws ConfigError
/// if its tensors cannot have that size.
format::HeaderLayout header_of(const Layout& layout, const LayoutFile& file);

/// Bytes of all tensors, without headers.
std::uint64_t tensor_bytes(const Layout& layout);

}  // namespace safeshuffle::synth
