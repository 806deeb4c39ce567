// What is in a directory.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace safeshuffle::format {

/// Whether the directory has this name, even as a dangling symlink: opening that gives the user a
/// better error than ignoring it.
bool has_entry(const std::filesystem::path& path);

/// Whether it is there, is a directory or a link to one, and can be looked at.
bool has_directory(const std::filesystem::path& path);

/// The names in a directory, sorted, but for hidden ones: those are other programs' shadows and
/// unfinished copies. Throws IoError.
std::vector<std::string> names_in(const std::filesystem::path& directory);

/// "a, b, c and 4 more".
std::string enumerate(const std::vector<std::string>& names);

}  // namespace safeshuffle::format
