// Directories that are created for something that may fail.
#pragma once

#include <filesystem>
#include <vector>

#include "core/unfinished.hpp"

namespace safeshuffle::core {

/// Sees to it that a directory exists. Destroyed without `keep`, or taken back as what is
/// unfinished, it removes what it has created, its parents included, if that is empty. Not
/// thread-safe.
class NewDirectory final : private Unfinished {
 public:
  /// Throws IoError.
  explicit NewDirectory(const std::filesystem::path& directory);
  ~NewDirectory();

  void keep() noexcept;

  /// What it has created and would remove: parents after what is in them.
  const std::vector<std::filesystem::path>& created() const noexcept { return created_; }

  /// Removes, if it comes to that, also what another process has created for the same purpose:
  /// whoever is last finds it empty.
  void share(std::vector<std::filesystem::path> created);

 private:
  void take_back() noexcept override;

  std::vector<std::filesystem::path> created_;
};

}  // namespace safeshuffle::core
