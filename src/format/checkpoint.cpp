#include <utility>

#include "safeshuffle/error.hpp"

#include "format/checkpoint.hpp"
#include "format/header.hpp"
#include "format/index.hpp"
#include "format/sharded_state.hpp"

namespace safeshuffle::format {
namespace {

[[noreturn]] void refuse(const std::string& file, const std::string& tensor, std::string cause) {
  throw FormatError(ErrorRecord{.code = static_cast<std::int32_t>(FormatErrc::index_mismatch),
                                .file = file,
                                .tensor = tensor,
                                .cause = std::move(cause)});
}

/// Checks that every tensor of the index is in the file it names.
void check_index_has_headers(const WeightMap& weight_map, const std::string& index_path,
                             const Catalog& catalog) {
  for (const auto& [name, file] : weight_map) {
    const std::string path = indexed_path(index_path, file);
    const TensorInfo* tensor = catalog.find(name);
    if (tensor == nullptr) refuse(path, name, "the index names this tensor, but no file has it");
    const std::string& actual = catalog.files()[tensor->file].path;
    if (actual != path) {
      refuse(path, name, "the index names this file, but the tensor is in " + actual);
    }
  }
}

/// Checks that every tensor of the files is in the index.
void check_headers_have_index(const WeightMap& weight_map, const std::string& index_path,
                              const Catalog& catalog) {
  for (const TensorInfo& tensor : catalog.tensors()) {
    if (weight_map.contains(tensor.name)) continue;
    refuse(catalog.files()[tensor.file].path, tensor.name,
           "the file has this tensor, but the index " + index_path + " does not name it");
  }
}

void append(Header header, std::uint32_t file, std::vector<TensorInfo>& tensors) {
  for (TensorInfo& tensor : header.tensors) {
    tensor.file = file;
    tensors.push_back(std::move(tensor));
  }
}

}  // namespace

Contents parse_contents(const Listing& listing, const std::vector<RawHeader>& headers) {
  const bool sharded = listing.index_path.empty() && is_sharded_state(listing.files);
  std::vector<FileInfo> files;
  std::vector<TensorInfo> tensors;
  std::vector<std::string> records;
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const RawHeader& raw = headers[i];
    Header header = parse_header(raw.json, raw.file_size, listing.files[i]);
    files.push_back({.path = listing.files[i],
                     .size = raw.file_size,
                     .data_start = header.data_start,
                     .modified_ns = raw.modified_ns,
                     .inode = raw.inode});
    if (sharded) records.push_back(std::move(header.metadata[std::string(shard_record_key)]));
    append(std::move(header), static_cast<std::uint32_t>(i), tensors);
  }
  tensors.shrink_to_fit();  // it is kept as long as the catalog
  Catalog catalog(std::move(files), std::move(tensors),
                  sharded ? Catalog::Names::by_file : Catalog::Names::unique);
  if (sharded) {
    auto state = std::make_shared<const ShardedState>(parse_sharded_state(catalog, records));
    return {std::move(catalog), std::move(state)};
  }
  if (!listing.index_path.empty()) {
    const WeightMap weight_map = parse_index(listing.index_json, listing.index_path);
    check_index_has_headers(weight_map, listing.index_path, catalog);
    check_headers_have_index(weight_map, listing.index_path, catalog);
  }
  return {std::move(catalog), nullptr};
}

}  // namespace safeshuffle::format
