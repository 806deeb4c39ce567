#include "source/hub_cache.hpp"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "safeshuffle/error.hpp"

#include "core/text.hpp"

namespace safeshuffle::source {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t longest_reference = 4096;

[[noreturn]] void refuse(const fs::path& directory, std::string cause) {
  throw IoError(ErrorRecord{.file = directory.string(), .cause = std::move(cause)});
}

bool has_directory(const Source& source, const fs::path& path) {
  return source.look_up(path.string()) == Entry::directory;
}

bool has_entry(const Source& source, const fs::path& path) {
  return source.look_up(path.string()) != Entry::none;
}

/// The path without a trailing slash, so that it ends in its last name.
fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

/// The model's directory in the cache if `directory` is one, or is the `snapshots` in one; else
/// empty.
fs::path model_of(const Source& source, const fs::path& directory) {
  if (has_directory(source, directory / "snapshots")) return directory;
  const fs::path parent = directory.parent_path();
  if (directory.filename() != "snapshots") return {};
  return has_entry(source, parent / "refs") || has_entry(source, parent / "blobs") ? parent
                                                                                   : fs::path();
}

/// The revision that refs/main names, if it exists.
fs::path main_revision(const Source& source, const fs::path& model) {
  const fs::path reference = model / "refs" / "main";
  if (!has_entry(source, reference)) return {};
  std::string name = read_text(source, reference.string(), longest_reference);
  name.erase(std::find_if(name.begin(), name.end(), [](char c) { return c == '\n' || c == '\r'; }),
             name.end());
  const bool is_name = !name.empty() && name.find('/') == std::string::npos && name[0] != '.';
  const fs::path revision = model / "snapshots" / name;
  return is_name && has_directory(source, revision) ? revision : fs::path();
}

fs::path revision_of(const Source& source, const fs::path& model) {
  const fs::path revision = main_revision(source, model);
  if (!revision.empty()) return revision;
  const fs::path snapshots = model / "snapshots";
  const std::vector<std::string> names = source.names_in(snapshots.string());
  if (names.size() == 1) return snapshots / names.front();
  if (names.empty()) refuse(snapshots, "the Hugging Face cache has no revision of this model");
  refuse(snapshots,
         "the Hugging Face cache has several revisions of this model, and refs/main selects none "
         "of them; pass the directory of one: " +
             core::enumerate(names));
}

void refuse_whole_cache(const Source& source, const fs::path& directory) {
  std::vector<std::string> names = source.names_in(directory.string());
  std::erase_if(names, [](const std::string& name) { return !name.starts_with("models--"); });
  if (names.empty()) return;
  refuse(directory, "this is a Hugging Face cache; pass the directory of a model in it: " +
                        core::enumerate(names));
}

}  // namespace

std::string cached_revision(const Source& source, const std::string& directory) {
  const fs::path model = model_of(source, without_slash(directory));
  if (!model.empty()) return revision_of(source, model).string();
  refuse_whole_cache(source, directory);
  return {};
}

}  // namespace safeshuffle::source
