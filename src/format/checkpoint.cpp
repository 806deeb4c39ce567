#include "format/checkpoint.hpp"

#include <utility>

#include "safeshuffle/error.hpp"

#include "core/tensor_bytes.hpp"
#include "format/header.hpp"
#include "format/sharded_state.hpp"

namespace safeshuffle::format {
namespace {

[[noreturn]] void refuse(const std::string& file, const std::string& tensor, std::string cause) {
  throw FormatError(ErrorRecord{.code = static_cast<std::int32_t>(FormatErrc::index_mismatch),
                                .file = file,
                                .tensor = tensor,
                                .cause = std::move(cause)});
}

/// Checks that every tensor of the index is in the file it names. Returns which of the catalog's
/// tensors those are.
std::vector<bool> check_index_has_headers(const Listing& listing, const Catalog& catalog) {
  std::vector<std::string> paths;
  for (const IndexedFile& file : listing.index.files) {
    paths.push_back(indexed_path(listing.index_path, file.name));
  }
  std::vector<bool> named(catalog.tensors().size());
  for (const IndexEntry& entry : listing.index.entries) {
    const std::string& path = paths[entry.file];
    const TensorInfo* tensor = catalog.find(entry.tensor);
    if (tensor == nullptr) {
      refuse(path, entry.tensor, "the index names this tensor, but no file has it");
    }
    const std::string& actual = catalog.files()[tensor->file].path;
    if (actual != path) {
      refuse(path, entry.tensor, "the index names this file, but the tensor is in " + actual);
    }
    named[static_cast<std::size_t>(tensor - catalog.tensors().data())] = true;
  }
  return named;
}

/// Checks that every tensor of the files is in the index.
void check_headers_have_index(const std::vector<bool>& named, const std::string& index_path,
                              const Catalog& catalog) {
  for (std::size_t i = 0; i < named.size(); ++i) {
    if (named[i]) continue;
    const TensorInfo& tensor = catalog.tensors()[i];
    refuse(catalog.files()[tensor.file].path, tensor.name,
           "the file has this tensor, but the index " + index_path + " does not name it");
  }
}

void append(FileHeader header, std::uint32_t file, std::vector<TensorInfo>& tensors) {
  for (TensorInfo& tensor : header.tensors) {
    tensor.file = file;
    tensors.push_back(std::move(tensor));
  }
}

}  // namespace

FileHeader parse_file_header(const RawHeader& raw, const std::string& path) {
  Header header = parse_header(raw.json, raw.file_size, path);
  FileHeader file{raw.file_size,
                  header.data_start,
                  raw.modified_ns,
                  raw.inode,
                  raw.cached_share,
                  std::move(header.tensors),
                  {}};
  const auto record = header.metadata.find(std::string(shard_record_key));
  if (record != header.metadata.end()) file.shard_record = std::move(record->second);
  return file;
}

// Offsets and sizes follow from types and shapes, for tensors lie one after the other.
void encode(const FileHeader& header, core::WireWriter& out) {
  out.put(header.file_size).put(header.data_start);
  out.put(static_cast<std::uint64_t>(header.modified_ns)).put(header.cached_share);
  out.put(header.shard_record).put(std::uint64_t{header.tensors.size()});
  for (const TensorInfo& tensor : header.tensors) {
    out.put_short(tensor.name).put_short(static_cast<std::uint64_t>(tensor.dtype));
    out.put_short(std::uint64_t{tensor.shape.size()});
    for (const std::uint64_t extent : tensor.shape) out.put_short(extent);
  }
}

FileHeader decode_file_header(core::WireReader& in) {
  FileHeader header;
  header.file_size = in.number();
  header.data_start = in.number();
  header.modified_ns = static_cast<std::int64_t>(in.number());
  header.cached_share = in.real();
  header.shard_record = in.text();
  header.tensors.resize(in.number());
  std::uint64_t offset = header.data_start;
  for (TensorInfo& tensor : header.tensors) {
    tensor.name = in.short_text();
    tensor.dtype = static_cast<DType>(in.short_number());
    tensor.shape.resize(in.short_number());
    for (std::uint64_t& extent : tensor.shape) extent = in.short_number();
    tensor.bytes = core::tensor_bytes(tensor.shape, tensor.dtype);
    tensor.file_offset = std::exchange(offset, offset + tensor.bytes);
  }
  return header;
}

Contents join_headers(const Listing& listing, const std::function<FileHeader()>& next) {
  const bool sharded = listing.index_path.empty() && is_sharded_state(listing.files);
  std::vector<FileInfo> files;
  std::vector<TensorInfo> tensors;
  std::vector<std::string> records;
  for (const std::string& path : listing.files) {
    FileHeader header = next();
    files.push_back({.path = path,
                     .size = header.file_size,
                     .data_start = header.data_start,
                     .modified_ns = header.modified_ns,
                     .inode = header.inode});
    if (sharded) records.push_back(std::move(header.shard_record));
    append(std::move(header), static_cast<std::uint32_t>(files.size() - 1), tensors);
  }
  tensors.shrink_to_fit();  // it is kept as long as the catalog
  Catalog catalog(std::move(files), std::move(tensors),
                  sharded ? Catalog::Names::by_file : Catalog::Names::unique);
  if (!sharded) return {std::move(catalog), nullptr};
  auto state = std::make_shared<const ShardedState>(parse_sharded_state(catalog, records));
  return {std::move(catalog), std::move(state)};
}

void check_index(const Listing& listing, const Catalog& catalog) {
  if (listing.index_path.empty()) return;
  check_headers_have_index(check_index_has_headers(listing, catalog), listing.index_path, catalog);
}

}  // namespace safeshuffle::format
