// model.safetensors.index.json: which tensor is in which file.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace safeshuffle::format {

/// File name, relative to the index, by tensor name: the `weight_map` of an index.
using WeightMap = std::map<std::string, std::string, std::less<>>;

/// Parses an index. Throws FormatError with `path` and the byte offset: header_bad_json if it is
/// not JSON, has no `weight_map`, or that is not an object of file names inside the index's
/// directory; duplicate_key if it names a tensor twice.
WeightMap parse_index(std::string_view json, const std::string& path);

/// The path of a file that the index at `index_path` names `name`.
std::string indexed_path(const std::string& index_path, const std::string& name);

}  // namespace safeshuffle::format
