#include "core/new_directory.hpp"

#include <system_error>
#include <utility>

#include "core/system_call.hpp"

namespace safeshuffle::core {
namespace {

namespace fs = std::filesystem;

/// Those of the path and its parents that do not exist.
std::vector<fs::path> missing(fs::path path) {
  std::vector<fs::path> found;
  std::error_code ignored;
  const auto vacant = [&] {
    return fs::symlink_status(path, ignored).type() == fs::file_type::not_found;
  };
  for (; !path.empty() && vacant(); path = path.parent_path()) {
    if (path.has_filename()) found.push_back(path);  // not one that ends in a slash
  }
  return found;
}

}  // namespace

NewDirectory::NewDirectory(const fs::path& directory) {
  const UnfinishedLock lock = lock_unfinished();
  created_ = missing(directory);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) {
    roll_back();
    raise_errno(error.value(), directory.string(), "cannot create the directory");
  }
  track();
}

NewDirectory::~NewDirectory() {
  const UnfinishedLock lock = lock_unfinished();
  roll_back();
  forget();
}

void NewDirectory::keep() noexcept {
  const UnfinishedLock lock = lock_unfinished();
  created_.clear();
}

void NewDirectory::share(std::vector<fs::path> created) {
  const UnfinishedLock lock = lock_unfinished();
  created_ = std::move(created);
}

void NewDirectory::roll_back() noexcept {
  std::error_code ignored;
  for (const fs::path& path : created_) fs::remove(path, ignored);  // fails unless empty
}

}  // namespace safeshuffle::core
