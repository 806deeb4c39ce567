#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "safeshuffle/error.hpp"

#include "core/posix_file.hpp"
#include "core/system_call.hpp"
#include "format/checkpoint.hpp"
#include "format/directory.hpp"
#include "format/header.hpp"
#include "format/hub_cache.hpp"
#include "format/index.hpp"

namespace safeshuffle::format {
namespace {

namespace fs = std::filesystem;

// An index repeats tensor names that headers hold; none is larger than the largest header.
constexpr std::uint64_t max_text_bytes = max_header_bytes;

[[noreturn]] void refuse(const std::string& path, std::string cause, std::string tensor = {}) {
  throw IoError(ErrorRecord{.file = path, .tensor = std::move(tensor), .cause = std::move(cause)});
}

/// Names in a directory that end in `suffix`, sorted.
std::vector<std::string> names_with(const std::string& directory, const std::string& suffix) {
  std::vector<std::string> names = names_in(directory);
  std::erase_if(names, [&](const std::string& name) { return !name.ends_with(suffix); });
  return names;
}

/// The index of a directory; empty if there is none, or several of equal rank.
std::string find_index(const std::string& directory) {
  const fs::path usual = fs::path(directory) / "model.safetensors.index.json";
  if (has_entry(usual)) return usual.string();
  const std::vector<std::string> names = names_with(directory, ".safetensors.index.json");
  return names.size() == 1 ? (fs::path(directory) / names.front()).string() : std::string();
}

/// One tensor of every file that an index names, by file name.
std::map<std::string, std::string> files_of(const WeightMap& weight_map) {
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : weight_map) files.try_emplace(file, tensor);
  return files;
}

/// Checks that a file that an index names is there, on behalf of one of its tensors.
void check_indexed_file(const std::string& path, const std::string& tensor) try {
  static_cast<void>(core::identify(path));
} catch (const IoError& error) {
  ErrorRecord record = error.record();
  record.tensor = tensor;
  record.cause = "the index names this file, but it cannot be used: " + record.cause;
  raise(std::move(record));
}

/// Two names for one file would make every tensor of it stand twice.
void refuse_repeats(const std::vector<std::string>& files, const Pulse& pulse) {
  std::map<fs::path, std::string> seen;
  for (const std::string& file : files) {
    std::error_code error;
    const fs::path target = fs::canonical(file, error);
    if (error) core::raise_errno(error.value(), file, "cannot resolve the path");
    const auto [first, inserted] = seen.try_emplace(target, file);
    if (!inserted) refuse(file, "the same file is also given as " + first->second);
    pulse.beat();
  }
}

void add_config_beside(const fs::path& file, Listing& listing) {
  const fs::path path = file.parent_path() / "config.json";
  if (!has_entry(path)) return;
  listing.config_path = path.string();
  listing.config_json = core::read_text(listing.config_path, max_text_bytes);
}

Listing list_index(const std::string& path, const Pulse& pulse) {
  Listing listing;
  add_config_beside(path, listing);
  listing.index_path = path;
  listing.index_json = core::read_text(path, max_text_bytes);
  std::map<std::string, std::string> files;
  pulse.during([&] { files = files_of(parse_index(listing.index_json, path)); });
  for (const auto& [name, tensor] : files) {
    listing.files.push_back(indexed_path(path, name));
    check_indexed_file(listing.files.back(), tensor);
    pulse.beat();
  }
  if (listing.files.empty()) refuse(path, "the index names no file");
  return listing;
}

Listing list_files(const std::vector<std::string>& paths, const Pulse& pulse) {
  for (const std::string& path : paths) {
    static_cast<void>(core::identify(path));
    pulse.beat();
  }
  Listing listing;
  listing.files = paths;
  add_config_beside(paths.front(), listing);
  return listing;
}

/// The checkpoint in a directory, if there is one.
std::optional<Listing> find_checkpoint(const std::string& directory, const Pulse& pulse) {
  const std::string index = find_index(directory);
  if (!index.empty()) return list_index(index, pulse);
  std::vector<std::string> paths;
  for (const std::string& name : names_with(directory, ".safetensors")) {
    paths.push_back((fs::path(directory) / name).string());
  }
  if (paths.empty()) return std::nullopt;
  return list_files(paths, pulse);
}

/// Files of weights in other formats.
std::vector<std::string> foreign_weights(const std::string& directory) {
  std::vector<std::string> found;
  for (const char* suffix : {".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack"}) {
    const std::vector<std::string> names = names_with(directory, suffix);
    found.insert(found.end(), names.begin(), names.end());
  }
  return found;
}

[[noreturn]] void refuse_directory(const std::string& directory) {
  const std::vector<std::string> foreign = foreign_weights(directory);
  if (foreign.empty()) refuse(directory, "no .safetensors file in the directory");
  refuse(directory,
         "no .safetensors file in the directory, but files of other formats, which must "
         "be converted to safetensors: " +
             enumerate(foreign));
}

Listing list_directory(const std::string& directory, const Pulse& pulse) {
  if (auto listing = find_checkpoint(directory, pulse)) return *std::move(listing);
  const std::string revision = cached_revision(directory);
  if (revision.empty()) refuse_directory(directory);
  if (auto listing = find_checkpoint(revision, pulse)) return *std::move(listing);
  refuse_directory(revision);
}

Listing list_paths(const std::vector<std::string>& paths, const Pulse& pulse) {
  if (paths.empty()) throw IoError("no checkpoint path given");
  if (paths.size() > 1) return list_files(paths, pulse);
  const std::string& path = paths.front();
  if (has_directory(path)) return list_directory(path, pulse);
  return path.ends_with(".json") ? list_index(path, pulse) : list_files(paths, pulse);
}

}  // namespace

Listing discover(const std::vector<std::string>& paths, const Pulse& pulse) {
  Listing listing = list_paths(paths, pulse);
  refuse_repeats(listing.files, pulse);
  return listing;
}

}  // namespace safeshuffle::format
