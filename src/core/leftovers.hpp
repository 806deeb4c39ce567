// The hidden names that files have before they are finished or after they are replaced, and the
// files that a killed writer left under such names.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace safeshuffle::core {

enum class HiddenFile {
  /// `.NAME.tmp-*`, the future NAME; locked as long as its writer runs. It has this name while it
  /// is published, and from the beginning if the filesystem does not support files without a name.
  unfinished,
  /// `.NAME.old-*`, the former NAME; NAME is locked as long as its writer runs.
  earlier,
};

/// A unique path next to `path`, hidden so that it is never mistaken for part of a checkpoint.
std::filesystem::path hidden_beside(const std::filesystem::path& path, HiddenFile kind);

/// The directory of `path`; "." if the path has none.
std::filesystem::path directory_of(const std::filesystem::path& path);

/// Selects files by name.
using NameFilter = std::function<bool(const std::string& name)>;

/// Removes unfinished files in `directory` whose names `chosen` accepts, and restores earlier files
/// whose names are free. Files whose writer is still running, on any node, and files that cannot be
/// examined or locked are not touched.
void recover_leftovers(const std::filesystem::path& directory, const NameFilter& chosen) noexcept;

/// Removes earlier files whose names `chosen` accepts and now belong to newer files.
void remove_superseded(const std::filesystem::path& directory, const NameFilter& chosen) noexcept;

}  // namespace safeshuffle::core
