#include "synth/file_set.hpp"

#include <system_error>
#include <utility>

#include "safeshuffle/error.hpp"

namespace safeshuffle::synth {

FileSet::FileSet(std::filesystem::path directory) : directory_(std::move(directory)) {
  std::error_code error;
  created_ = std::filesystem::create_directories(directory_, error);
  if (!error) return;
  throw IoError(ErrorRecord{.code = error.value(),
                            .file = directory_.string(),
                            .tensor = {},
                            .offset = {},
                            .cause = "cannot create the directory: " + error.message()});
}

FileSet::~FileSet() {
  if (!committed_) discard();
}

format::FileWriter& FileSet::add(const std::string& name, format::HeaderLayout layout) {
  const std::filesystem::path path = directory_ / name;
  if (std::filesystem::exists(std::filesystem::symlink_status(path))) {
    throw ConfigError(
        ErrorRecord{.file = path.string(), .tensor = {}, .offset = {}, .cause = "exists already"});
  }
  paths_.push_back(path);
  return writers_.emplace_back(path, std::move(layout));
}

void FileSet::add_text(const std::string& name, std::string text) {
  const std::uint64_t size = text.size();
  add(name, {.bytes = std::move(text), .file_offset = {}, .file_size = size});
}

void FileSet::commit() {
  for (format::FileWriter& writer : writers_) writer.flush();
  auto path = paths_.begin();
  try {
    for (format::FileWriter& writer : writers_) {
      ++path;  // first: a commit that fails may have renamed already
      writer.commit();
    }
  } catch (...) {
    std::error_code ignored;
    for (auto done = paths_.begin(); done != path; ++done) std::filesystem::remove(*done, ignored);
    throw;
  }
  committed_ = true;
}

void FileSet::discard() noexcept {
  writers_.clear();
  std::error_code ignored;
  if (created_) std::filesystem::remove(directory_, ignored);  // fails unless empty
}

}  // namespace safeshuffle::synth
