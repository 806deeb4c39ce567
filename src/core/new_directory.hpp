// Creates directories for an operation that may fail.
#pragma once

#include <filesystem>
#include <vector>

#include "core/unfinished.hpp"

namespace safeshuffle::core {

/// Ensures that a directory exists. If it is destroyed without `keep`, or rolled back as
/// unfinished, it removes the directories it created, including parents, that are empty. Not
/// thread-safe.
class NewDirectory final : private Unfinished {
 public:
  /// Throws IoError.
  explicit NewDirectory(const std::filesystem::path& directory);
  ~NewDirectory();

  void keep() noexcept;

  /// The directories that it created and would remove: children before parents.
  const std::vector<std::filesystem::path>& created() const noexcept { return created_; }

  /// Also removes directories that another process created for the same purpose: the last process
  /// finds them empty.
  void share(std::vector<std::filesystem::path> created);

 private:
  void roll_back() noexcept override;

  std::vector<std::filesystem::path> created_;
};

}  // namespace safeshuffle::core
