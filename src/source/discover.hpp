// Finding the files of a checkpoint and reading their headers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "format/checkpoint.hpp"
#include "source/source.hpp"

namespace safeshuffle::source {

/// How a long search shows that it is making progress.
struct Pulse {
  /// Called between calls to storage.
  std::function<void()> beat = [] {};

  /// Runs a computation that may take long.
  std::function<void(const std::function<void()>&)> during = [](const auto& compute) { compute(); };
};

/// Finds the files. `paths` is one directory, one .index.json, or one or more .safetensors files.
/// A directory with an index is read by the index (model.safetensors.index.json, else the only
/// *.safetensors.index.json), else those of its *.safetensors in name order that are the model (see
/// format/model_files.hpp); a directory of the Hugging Face cache selects a revision in it, see
/// hub_cache.hpp. Files of a sharded state are ordered by part and rank. Symlinks are followed; an
/// index must not name the same file by different names, nor one outside its directory. Throws
/// IoError (nothing found, a file missing, unreadable) or FormatError (index not valid).
format::Listing discover(const Source& source, const std::vector<std::string>& paths,
                         const Pulse& pulse = {});

/// Reads one file's header bytes. Throws IoError or FormatError.
format::RawHeader read_header(const Source& source, const std::string& path);

}  // namespace safeshuffle::source
