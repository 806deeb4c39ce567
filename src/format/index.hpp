// model.safetensors.index.json: which tensor is in which file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace safeshuffle::format {

/// A file that an index names.
struct IndexedFile {
  std::string name;    ///< relative to the index
  std::string tensor;  ///< one that the index says is in it
};

struct IndexEntry {
  std::string tensor;
  std::uint32_t file = 0;  ///< index into Index::files
};

/// The `weight_map` of an index.
struct Index {
  std::vector<IndexedFile> files;   ///< ordered by name, each once
  std::vector<IndexEntry> entries;  ///< in the order of the text; each tensor once
};

/// Parses an index. Throws FormatError with `path` and the byte offset: header_bad_json if it is
/// not JSON, has no `weight_map`, or that is not an object of file names inside the index's
/// directory; duplicate_key if it names a tensor twice.
Index parse_index(std::string_view json, const std::string& path);

/// The path of a file that the index at `index_path` names `name`.
std::string indexed_path(const std::string& index_path, const std::string& name);

}  // namespace safeshuffle::format
