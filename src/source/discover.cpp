#include "source/discover.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "safeshuffle/error.hpp"

#include "core/text.hpp"
#include "format/header.hpp"
#include "format/index.hpp"
#include "format/model_files.hpp"
#include "format/sharded_state.hpp"
#include "source/hub_cache.hpp"

namespace safeshuffle::source {
namespace {

namespace fs = std::filesystem;

// An index repeats tensor names that headers hold; none is larger than the largest header.
constexpr std::uint64_t max_text_bytes = format::max_header_bytes;

[[noreturn]] void refuse(const std::string& path, std::string cause, std::string tensor = {}) {
  throw IoError(ErrorRecord{.file = path, .tensor = std::move(tensor), .cause = std::move(cause)});
}

/// Names in a directory that end in `suffix`, sorted.
std::vector<std::string> names_with(const Source& source, const std::string& directory,
                                    const std::string& suffix) {
  std::vector<std::string> names = source.names_in(directory);
  std::erase_if(names, [&](const std::string& name) { return !name.ends_with(suffix); });
  return names;
}

/// The index of a directory; empty if there is none, or several of equal rank.
std::string find_index(const Source& source, const std::string& directory) {
  const fs::path usual = fs::path(directory) / "model.safetensors.index.json";
  if (source.look_up(usual.string()) != Entry::none) return usual.string();
  const std::vector<std::string> names = names_with(source, directory, ".safetensors.index.json");
  return names.size() == 1 ? (fs::path(directory) / names.front()).string() : std::string();
}

/// The inode of a file that an index names; errors name `tensor`, one of the file's tensors.
std::uint64_t inode_of_indexed(const Source& source, const std::string& path,
                               const std::string& tensor) try {
  return source.is_remote(path) ? 0 : source.identify(path).inode;
} catch (const IoError& error) {
  ErrorRecord record = error.record();
  record.tensor = tensor;
  record.cause = "the index names this file, but it cannot be used: " + record.cause;
  raise(std::move(record));
}

/// If a file had two names, each of its tensors would be in the checkpoint twice. To resolve a path
/// takes several system calls, so only those are resolved that may name the same file.
void refuse_repeats(const Source& source, const std::vector<std::string>& files,
                    const std::vector<std::uint64_t>& inodes, const Pulse& pulse) {
  std::unordered_map<std::uint64_t, std::size_t> names;  // by inode: how many
  for (const std::uint64_t inode : inodes) ++names[inode];
  std::map<std::string, std::string> seen;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (names[inodes[i]] == 1) continue;
    const auto [first, inserted] = seen.try_emplace(source.canonical(files[i]), files[i]);
    if (!inserted) refuse(files[i], "the same file is also given as " + first->second);
    pulse.beat();
  }
}

void add_config_beside(const Source& source, const fs::path& file, format::Listing& listing) {
  const fs::path path = file.parent_path() / "config.json";
  if (source.look_up(path.string()) == Entry::none) return;
  listing.config_path = path.string();
  listing.config_json = read_text(source, listing.config_path, max_text_bytes);
}

format::Listing list_index(const Source& source, const std::string& path, const Pulse& pulse) {
  format::Listing listing;
  add_config_beside(source, path, listing);
  listing.index_path = path;
  const std::string json = read_text(source, path, max_text_bytes);
  pulse.during([&] { listing.index = format::parse_index(json, path); });
  std::vector<std::uint64_t> inodes;
  for (const format::IndexedFile& file : listing.index.files) {
    listing.files.push_back(format::indexed_path(path, file.name));
    inodes.push_back(inode_of_indexed(source, listing.files.back(), file.tensor));
    pulse.beat();
  }
  if (listing.files.empty()) refuse(path, "the index names no file");
  refuse_repeats(source, listing.files, inodes, pulse);
  return listing;
}

format::Listing list_files(const Source& source, const std::vector<std::string>& paths,
                           const Pulse& pulse) {
  std::vector<std::uint64_t> inodes;
  for (const std::string& path : paths) {
    inodes.push_back(source.is_remote(path) ? 0 : source.identify(path).inode);
    pulse.beat();
  }
  refuse_repeats(source, paths, inodes, pulse);
  format::Listing listing;
  listing.files = paths;
  add_config_beside(source, paths.front(), listing);
  return listing;
}

void warn_of_left_out(std::vector<std::string>& warnings, const std::string& why,
                      const std::vector<std::string>& names) {
  if (!names.empty()) warnings.push_back("left out " + why + ": " + core::enumerate(names));
}

/// The files of a directory that its index does not name.
std::vector<std::string> not_indexed(std::vector<std::string> names, const format::Index& index) {
  std::set<std::string> indexed;
  for (const format::IndexedFile& file : index.files) {
    indexed.insert(fs::path(file.name).lexically_normal().string());
  }
  std::erase_if(names, [&](const std::string& name) {
    return indexed.contains(fs::path(name).lexically_normal().string());
  });
  return names;
}

/// The model in a directory with these files, without an index.
format::Listing list_model(const Source& source, const std::string& directory,
                           const std::vector<std::string>& names, const Pulse& pulse) {
  const format::ModelFiles files = format::sort_model_files(names);
  if (format::is_adapter_file(files.model.front())) {
    refuse(directory, format::only_adapters(files.model));
  }
  const std::string missing = format::missing_files(files.model);
  if (!missing.empty()) {
    refuse(directory, "files are missing in the directory: " + missing +
                          "; to load only what is there, give the files by name");
  }
  std::vector<std::string> paths;
  for (const std::string& name : files.model)
    paths.push_back((fs::path(directory) / name).string());
  format::Listing listing = list_files(source, paths, pulse);
  listing.directory = directory;
  warn_of_left_out(listing.warnings, "as a second copy of the model", files.copies);
  if (!files.adapters.empty()) {
    listing.warnings.push_back(format::adapters_warning(files.adapters));
  }
  return listing;
}

/// The checkpoint in a directory, if there is one. Beside a sharded state, an index is that of the
/// original: who saves it may copy all files that are not weights, as vLLM's script does.
std::optional<format::Listing> find_checkpoint(const Source& source, const std::string& directory,
                                               const Pulse& pulse) {
  const std::vector<std::string> names = names_with(source, directory, ".safetensors");
  const std::string index =
      format::is_sharded_state(names) ? std::string() : find_index(source, directory);
  if (!index.empty()) {
    format::Listing listing = list_index(source, index, pulse);
    warn_of_left_out(listing.warnings, "because the index does not name it",
                     not_indexed(names, listing.index));
    return listing;
  }
  if (names.empty()) return std::nullopt;
  return list_model(source, directory, names, pulse);
}

[[noreturn]] void refuse_directory(const std::string& directory) {
  refuse(directory, "no .safetensors file in the directory; other formats must be converted");
}

format::Listing list_directory(const Source& source, const std::string& directory,
                               const Pulse& pulse) {
  if (auto listing = find_checkpoint(source, directory, pulse)) return *std::move(listing);
  const std::string revision = cached_revision(source, directory);
  if (revision.empty()) refuse_directory(directory);
  if (auto listing = find_checkpoint(source, revision, pulse)) return *std::move(listing);
  refuse_directory(revision);
}

format::Listing list_paths(const Source& source, const std::vector<std::string>& paths,
                           const Pulse& pulse) {
  if (paths.empty()) throw IoError("no checkpoint path given");
  if (paths.size() > 1) return list_files(source, paths, pulse);
  const std::string& path = paths.front();
  if (source.look_up(path) == Entry::directory) return list_directory(source, path, pulse);
  return path.ends_with(".json") ? list_index(source, path, pulse)
                                 : list_files(source, paths, pulse);
}

}  // namespace

format::Listing discover(const Source& source, const std::vector<std::string>& paths,
                         const Pulse& pulse) {
  std::vector<std::string> pinned;
  for (const std::string& path : paths) pinned.push_back(source.pinned(path));
  format::Listing listing = list_paths(source, pinned, pulse);
  if (listing.index_path.empty()) format::order_shards(listing.files);
  listing.files = source.local(listing.files);
  return listing;
}

}  // namespace safeshuffle::source
