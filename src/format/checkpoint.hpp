// Finding the files of a checkpoint and reading their headers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "safeshuffle/metadata.hpp"

namespace safeshuffle::format {

/// Which files make up a checkpoint.
struct Listing {
  std::vector<std::string> files;  ///< paths as they can be opened, in the checkpoint's order
  std::string config_path;         ///< config.json beside the files; empty if there is none
  std::string config_json;         ///< its text
  std::string index_path;          ///< the .index.json that was used; empty if none
  std::string index_json;          ///< its text
};

/// How a long search shows that it is going on.
struct Pulse {
  /// Called between calls to storage.
  std::function<void()> beat = [] {};

  /// Makes a computation that may take long.
  std::function<void(const std::function<void()>&)> during = [](const auto& compute) { compute(); };
};

/// Finds the files. `paths` is one directory, one .index.json, or one or more .safetensors files.
/// A directory with an index is read by the index (model.safetensors.index.json, else the only
/// *.safetensors.index.json), else all its *.safetensors in name order; one of Hugging Face's cache
/// stands for a revision in it, see hub_cache.hpp. Symlinks are followed; two
/// index entries may not name the same file twice under different names; an index may not point
/// outside its directory. Throws IoError (nothing found, a named file missing, unreadable) or
/// FormatError (index not valid).
Listing discover(const std::vector<std::string>& paths, const Pulse& pulse = {});

/// A header as read from disk, not yet parsed.
struct RawHeader {
  std::string json;
  std::uint64_t file_size = 0;
  std::int64_t modified_ns = 0;
};

/// Reads one file's header bytes. Throws IoError or FormatError.
RawHeader read_header(const std::string& path);

/// Parses headers (in the order of `listing.files`) into a catalog. Throws FormatError, also if a
/// tensor is in two files or the headers disagree with the index: a tensor that the index has
/// and the named file lacks, or that a file has and the index lacks or places elsewhere.
Catalog make_catalog(const Listing& listing, const std::vector<RawHeader>& headers);

}  // namespace safeshuffle::format
