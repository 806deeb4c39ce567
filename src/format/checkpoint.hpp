// Builds the catalog of a checkpoint from the contents of its files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/metadata.hpp"
#include "safeshuffle/sharded_state.hpp"

#include "core/wire.hpp"
#include "format/index.hpp"

namespace safeshuffle::format {

/// Which files make up a checkpoint.
struct Listing {
  std::vector<std::string> files;  ///< paths that can be opened, in the checkpoint's order
  std::string config_path;         ///< config.json beside the files; empty if there is none
  std::string config_json;         ///< its text
  std::string index_path;          ///< the .index.json that was used; empty if none
  Index index;                     ///< what it says
  std::string directory;  ///< if they are what a directory without an index has; else empty
  std::vector<std::string> warnings;  ///< which files beside them are left out, and why
};

/// A header as stored, not yet parsed.
struct RawHeader {
  std::string json;
  std::uint64_t file_size = 0;
  std::int64_t modified_ns = 0;
  std::uint64_t inode = 0;  ///< 0: not known to this process
  /// Of the file, in the page cache of the node that read the header; empty if unknown.
  std::optional<double> cached_share;
};

/// What the header of one file says.
struct FileHeader {
  std::uint64_t file_size = 0;
  std::uint64_t data_start = 0;
  std::int64_t modified_ns = 0;
  std::uint64_t inode = 0;                                    ///< as in RawHeader
  std::optional<double> cached_share = {};                    ///< as in RawHeader
  std::vector<TensorInfo> tensors;                            ///< as in Header
  std::vector<std::pair<std::string, std::string>> metadata;  ///< by key, but for `shard_record`
  std::string shard_record;  ///< what it has under `shard_record_key`; empty if nothing

  /// Names that its metadata gives to its tensors, which are indices into `tensors`.
  std::vector<std::pair<std::string, std::uint32_t>> aliases = {};
};

/// Throws FormatError.
FileHeader parse_file_header(const RawHeader& raw, const std::string& path);

/// Without the inode, which is valid for this rank only: on other nodes, the same file may have a
/// different one. Takes about half the bytes of the JSON text.
void encode(const FileHeader& header, core::WireWriter& out);
FileHeader decode_file_header(core::WireReader& in);

/// What the headers of all files say.
struct Contents {
  Catalog catalog;
  std::shared_ptr<const ShardedState> sharded_state;  ///< null if it is not one
  std::vector<Alias> aliases = {};                    ///< by name, each once
};

/// Joins the headers of all files, which `next` returns in the order of `listing.files`. Throws
/// FormatError if a tensor is in two files that are no sharded state and have no index.
Contents join_headers(const Listing& listing, const std::function<FileHeader()>& next);

/// Where headers and index disagree.
struct IndexFindings {
  /// Tensors of the catalog, ascending, of names that other files have too: all but one of each
  /// name, which is the one in the file that the index names, if there is that.
  std::vector<std::uint32_t> copies;

  /// Errors, unless their tensors are not to be loaded: what the index names and no file, or only
  /// another file has; and what the index does not name.
  std::vector<ErrorRecord> mismatches;
};

/// Nothing without an index. Aliases are as good as tensors.
IndexFindings compare_with_index(const Listing& listing, const Contents& contents);

/// That these copies are left out.
std::string copies_warning(const Catalog& catalog, const std::vector<std::uint32_t>& copies);

/// The files all of whose tensors are those of an adapter, by their names (LoRA).
std::vector<FileInfo> adapter_files(const Catalog& catalog);

/// The catalog without these tensors, which are ascending. Throws FormatError as Catalog.
Catalog without(const Catalog& catalog, const std::vector<std::uint32_t>& left_out);

}  // namespace safeshuffle::format
