// The hidden names that files have before they are finished or after they are replaced, and what is
// left under them when the writer was killed.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace safeshuffle::core {

enum class HiddenFile {
  /// `.NAME.tmp-*`, what is to become NAME; locked as long as its writer lives. It has this name
  /// while it is published, and from the beginning where files cannot be without a name.
  unfinished,
  /// `.NAME.old-*`, what NAME was; NAME is locked as long as its writer lives.
  earlier,
};

/// A path beside `path` that nobody else has, hidden so that it is never taken for part of a
/// checkpoint.
std::filesystem::path hidden_beside(const std::filesystem::path& path, HiddenFile kind);

/// The directory of `path`; "." if it names none.
std::filesystem::path directory_of(const std::filesystem::path& path);

/// Chooses files by name.
using NameFilter = std::function<bool(const std::string& name)>;

/// Removes unfinished files in `directory`, of the names that `chosen` accepts, and gives earlier
/// ones their names back where nothing has these now. Files whose writer is alive, on this node or
/// another, are left alone; so is whatever cannot be looked at or locked.
void recover_leftovers(const std::filesystem::path& directory, const NameFilter& chosen) noexcept;

/// Removes earlier files, of the names that `chosen` accepts, that something has replaced since.
void remove_superseded(const std::filesystem::path& directory, const NameFilter& chosen) noexcept;

}  // namespace safeshuffle::core
