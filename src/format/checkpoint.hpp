// Builds the catalog of a checkpoint from the contents of its files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "safeshuffle/metadata.hpp"
#include "safeshuffle/sharded_state.hpp"

namespace safeshuffle::format {

/// Which files make up a checkpoint.
struct Listing {
  std::vector<std::string> files;  ///< paths that can be opened, in the checkpoint's order
  std::string config_path;         ///< config.json beside the files; empty if there is none
  std::string config_json;         ///< its text
  std::string index_path;          ///< the .index.json that was used; empty if none
  std::string index_json;          ///< its text
};

/// A header as stored, not yet parsed.
struct RawHeader {
  std::string json;
  std::uint64_t file_size = 0;
  std::int64_t modified_ns = 0;
  std::uint64_t inode = 0;  ///< 0: not known to this process
  double cached_share = 0;  ///< of the file, in the page cache of the node that read the header;
                            ///< 0 if unknown
};

/// What the headers of all files say.
struct Contents {
  Catalog catalog;
  std::shared_ptr<const ShardedState> sharded_state;  ///< null if it is not one
};

/// Parses headers (in the order of `listing.files`). Throws FormatError, also if a tensor is in two
/// files that are no sharded state, or the headers disagree with the index: a tensor that the index
/// has and the named file lacks, or that a file has and the index lacks or places elsewhere.
Contents parse_contents(const Listing& listing, const std::vector<RawHeader>& headers);

}  // namespace safeshuffle::format
