#include "synth/file_set.hpp"

#include <span>
#include <utility>

#include "safeshuffle/error.hpp"

namespace safeshuffle::synth {

FileSet::FileSet(std::filesystem::path directory)
    : directory_(std::move(directory)), new_directory_(directory_) {}

output::FileWriter& FileSet::add(const std::string& name, format::HeaderLayout layout) {
  return writers_.emplace_back(vacant(name), std::move(layout));
}

void FileSet::add_text(const std::string& name, std::string_view text) {
  texts_.emplace_back(vacant(name)).write(0, std::as_bytes(std::span(text)));
}

std::filesystem::path FileSet::vacant(const std::string& name) const {
  std::filesystem::path path = directory_ / name;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path))) return path;
  throw ConfigError(ErrorRecord{.file = path.string(), .cause = "already exists"});
}

void FileSet::commit() {
  for (output::FileWriter& writer : writers_) writer.flush();
  for (core::AtomicFile& text : texts_) text.sync();
  for (output::FileWriter& writer : writers_) writer.publish();
  for (core::AtomicFile& text : texts_) text.publish();
  for (output::FileWriter& writer : writers_) writer.commit();
  for (core::AtomicFile& text : texts_) text.commit();
  new_directory_.keep();
}

}  // namespace safeshuffle::synth
