#include "format/directory.hpp"

#include <algorithm>
#include <system_error>

#include "core/system_call.hpp"

namespace safeshuffle::format {

namespace fs = std::filesystem;

bool has_entry(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

bool has_directory(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::vector<std::string> names_in(const fs::path& directory) try {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with('.')) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
} catch (const fs::filesystem_error& error) {
  core::raise_errno(error.code().value(), directory.string(), "cannot list the directory");
}

std::string enumerate(const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  return names.size() <= most ? text
                              : text + " and " + std::to_string(names.size() - most) + " more";
}

}  // namespace safeshuffle::format
