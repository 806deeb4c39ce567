// What a user may do with files of somebody else.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <unistd.h>

namespace safeshuffle::testing {

/// Whether `become_nobody` works.
inline bool is_root() {
  return ::geteuid() == 0;
}

/// The process then neither owns files of root nor may write to them. Ends it if that fails.
inline void become_nobody() {
  constexpr uid_t nobody = 65534;
  if (::setuid(nobody) != 0) ::_exit(EXIT_FAILURE);
}

inline void permit_others_to_read(const std::filesystem::path& directory) {
  using std::filesystem::perms;
  const auto permit = [](const std::filesystem::path& path) {
    std::filesystem::permissions(
        path, perms::group_read | perms::group_exec | perms::others_read | perms::others_exec,
        std::filesystem::perm_options::add);
  };
  permit(directory);
  for (const auto& entry : std::filesystem::directory_iterator(directory)) permit(entry.path());
}

}  // namespace safeshuffle::testing
