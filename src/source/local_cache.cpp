#include "source/local_cache.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "safeshuffle/error.hpp"

#include "core/error_wire.hpp"
#include "core/posix_file.hpp"
#include "core/thread_pool.hpp"
#include "format/header.hpp"
#include "source/discover.hpp"
#include "source/hub_path.hpp"
#include "source/partial_file.hpp"
#include "source/select.hpp"

namespace safeshuffle::source {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t commit_digits = 40;
constexpr std::size_t asked_at_a_time = 8;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_commit(std::string_view revision) {
  return revision.size() == commit_digits &&
         revision.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string with_dashes(std::string_view text) {
  std::string result;
  for (const char c : text) result += c == '/' ? std::string("--") : std::string(1, c);
  return result;
}

// Where an object is kept.
struct Place {
  fs::path blobs;
  fs::path link;
  std::string object;  // its URL, but for a revision

  // Servers that make tags of size and time give the same one to different objects.
  fs::path blob(const core::FileIdentity& version) const {
    const std::string key = object + " " + std::to_string(version.modified_ns);
    char text[64];
    std::snprintf(text, sizeof text, "%016llx-%llu",
                  static_cast<unsigned long long>(XXH3_64bits(key.data(), key.size())),
                  static_cast<unsigned long long>(version.size));
    return blobs / text;
  }
};

// Empty for what has no version in its URL that stays what it is, or could leave the directory.
std::optional<Place> place_of(const fs::path& root, const std::string& path) {
  for (const fs::path& name : fs::path(path)) {
    if (name == ".." || name == ".") return {};
  }
  if (is_hub_path(path)) {
    const HubPath hub = parse_hub_path(path);
    if (!is_commit(hub.revision) || hub.inside.empty()) return {};
    const fs::path model = root / ("models--" + with_dashes(hub.model));
    return Place{model / "blobs", model / "snapshots" / hub.revision / hub.inside,
                 hub.model + "/" + hub.inside};
  }
  const std::size_t slash = path.rfind('/');
  const std::string protocol = path.substr(0, path.find(':'));
  const std::string rest = path.substr(protocol.size() + 3, slash - protocol.size() - 3);
  const fs::path directory = root / (protocol + "--" + with_dashes(rest));
  return Place{directory / "blobs", directory / path.substr(slash + 1), path};
}

// In one step, also in place of another.
void make_link(const fs::path& link, const fs::path& target) {
  fs::create_directories(link.parent_path());
  const fs::path made = link.string() + ".new-" + std::to_string(::getpid());
  fs::remove(made);
  fs::create_symlink(fs::relative(target, link.parent_path()), made);
  fs::rename(made, link);
}

bool leads_to(const fs::path& link, const fs::path& blob, std::uint64_t bytes) {
  std::error_code ignored;
  return fs::read_symlink(link, ignored).filename() == blob.filename() &&
         fs::file_size(blob, ignored) == bytes;
}

// The time of modification is part of what distinguishes versions of files.
void note_use(const fs::path& file) {
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_NOW},
                             {.tv_sec = 0, .tv_nsec = UTIME_OMIT}};
  static_cast<void>(::utimensat(AT_FDCWD, file.c_str(), times, 0));
}

struct Blob {
  fs::path path;
  std::uint64_t bytes = 0;
  std::int64_t used = 0;  // seconds since the Unix epoch
};

bool is_place(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  const std::string scheme = name.substr(0, name.find("--"));
  return entry.is_directory() && !entry.is_symlink() &&
         (scheme == "models" || is_url(scheme + "://"));
}

bool is_abandoned(const struct stat& status) {
  constexpr std::time_t a_day = 24 * 60 * 60;
  return std::time(nullptr) - status.st_mtim.tv_sec > a_day;
}

// Those that are complete, or that nobody goes on with.
std::vector<Blob> blobs_in(const fs::path& root) {
  std::vector<Blob> blobs;
  for (const fs::directory_entry& place : fs::directory_iterator(root)) {
    if (!is_place(place) || !is_there(place.path() / "blobs")) continue;
    for (const fs::directory_entry& blob : fs::directory_iterator(place.path() / "blobs")) {
      struct stat status {};
      if (::lstat(blob.path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
      const fs::path ending = blob.path().extension();
      if (!ending.empty() && (ending != ".incomplete" || !is_abandoned(status))) continue;
      constexpr std::uint64_t block = 512;  // of st_blocks, whatever the file system's is
      blobs.push_back({blob.path(), static_cast<std::uint64_t>(status.st_blocks) * block,
                       std::max(status.st_atim.tv_sec, status.st_mtim.tv_sec)});
    }
  }
  return blobs;
}

void remove_with_links(const fs::path& blob) {
  fs::remove(blob);
  std::vector<fs::path> links;
  const fs::path place = blob.parent_path().parent_path();
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(place)) {
    if (entry.is_symlink() && fs::read_symlink(entry.path()).filename() == blob.filename()) {
      links.push_back(entry.path());
    }
  }
  for (const fs::path& link : links) fs::remove(link);
}

/// What one process keeps. Thread-safe.
class Kept {
 public:
  Kept(fs::path root, std::uint64_t most_bytes) : root_(std::move(root)), most_bytes_(most_bytes) {}

  /// Null if it cannot be kept.
  std::shared_ptr<PartialFile> partial(const Place& place, const core::FileIdentity& version) {
    if (most_bytes_ != 0 && version.size > most_bytes_) return nullptr;
    const std::scoped_lock lock(mutex_);
    if (!obstacle_.empty()) return nullptr;
    try {
      fs::create_directories(place.blobs);
      const fs::path blob = place.blob(version);
      const auto known = files_.find(place.link);
      if (known != files_.end() && known->second.blob == blob) return known->second.content;
      auto content = std::make_shared<PartialFile>(blob, version.size);
      files_[place.link] = {blob, version.size, content};
      return content;
    } catch (...) {
      obstacle_ = core::current_error().cause;
      return nullptr;
    }
  }

  void write(PartialFile& file, std::uint64_t offset, std::span<const std::byte> data) {
    try {
      file.write(offset, data);
      bytes_ += data.size();
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      obstacle_ = core::current_error().cause;
    }
  }

  void note_revision(const std::string& model, const std::string& revision,
                     const std::string& commit) {
    const std::scoped_lock lock(mutex_);
    revisions_[{root_ / ("models--" + with_dashes(model)), revision}] = commit;
  }

  void tell(Requests& requests) const {
    const std::scoped_lock lock(mutex_);
    requests.kept_bytes = bytes_;
    requests.not_kept = obstacle_;
  }

  /// Others do not remove it until `finish`, whatever their bound. If locks fail, they may.
  void spare(const fs::path& file) noexcept {
    attempt([&] {
      auto spared = core::PosixFile::open(file.string());
      spared.lock_shared();
      const std::scoped_lock lock(mutex_);
      spared_.push_back(std::move(spared));
    });
  }

  /// What fails is fetched again by those who come later.
  void finish() noexcept {
    spared_.clear();
    if (files_.empty()) return;
    for (const auto& [link, file] : files_) {
      attempt([&content = *file.content] { content.finish(); });
    }
    attempt([&] {
      const core::PosixFile lock = open_locked((root_ / ".safeshuffle-lock").string());
      for (const auto& [link, file] : files_) {
        attempt([&path = link, &blob = file.blob, bytes = file.bytes] {
          if (is_there(blob) && !leads_to(path, blob, bytes)) make_link(path, blob);
        });
      }
      attempt([&] { write_revisions(); });
      if (most_bytes_ != 0) attempt([&] { remove_oldest(); });
    });
  }

 private:
  struct File {
    fs::path blob;
    std::uint64_t bytes = 0;
    std::shared_ptr<PartialFile> content;
  };

  template <class Step>
  static void attempt(const Step& step) noexcept {
    try {
      step();
    } catch (const std::exception&) {
    }
  }

  // For those that come by name; only of what is there.
  void write_revisions() {
    for (const auto& [named, commit] : revisions_) {
      const auto& [model, revision] = named;
      if (!is_there(model / "snapshots" / commit)) continue;
      const fs::path path = model / "refs" / revision;  // which may have slashes
      fs::create_directories(path.parent_path());
      const auto file = core::PosixFile::open_or_create(path.string());
      file.write(0, std::as_bytes(std::span(commit)));
      file.resize(commit.size());
    }
  }

  void remove_oldest() {
    std::vector<Blob> blobs = blobs_in(root_);
    std::ranges::sort(blobs, {}, &Blob::used);
    std::uint64_t bytes = 0;
    for (const Blob& blob : blobs) bytes += blob.bytes;
    for (const Blob& blob : blobs) {
      if (bytes <= most_bytes_) break;
      if (!core::is_unlocked(blob.path.string())) continue;
      remove_with_links(blob.path);
      bytes -= blob.bytes;
    }
  }

  const fs::path root_;
  const std::uint64_t most_bytes_;
  std::atomic<std::uint64_t> bytes_ = 0;
  mutable std::mutex mutex_;                                           // guards what follows
  std::map<fs::path, File> files_;                                     // by link
  std::map<std::pair<fs::path, std::string>, std::string> revisions_;  // commits, by model and name
  std::vector<core::PosixFile> spared_;                                // locked
  std::string obstacle_;
};

/// Reads what is there from the disk, and keeps what is not.
class KeepingHandle final : public Handle {
 public:
  KeepingHandle(Kept& kept, std::unique_ptr<Handle> handle, std::shared_ptr<PartialFile> file)
      : kept_(kept), handle_(std::move(handle)), file_(std::move(file)) {}

  const core::FileIdentity& identity() const noexcept override { return handle_->identity(); }

  std::size_t read_some(std::uint64_t offset, std::span<std::byte> to) const override {
    to = to.first(
        std::min<std::uint64_t>(to.size(), identity().size - std::min(offset, identity().size)));
    if (file_->has(offset, to.size())) {
      file_->read(offset, to);
      return to.size();
    }
    const std::size_t bytes = handle_->read_some(offset, to);
    kept_.write(*file_, offset, to.first(bytes));
    return bytes;
  }

 private:
  Kept& kept_;
  const std::unique_ptr<Handle> handle_;
  const std::shared_ptr<PartialFile> file_;
};

class LocalCache final : public Source {
 public:
  LocalCache(std::unique_ptr<const Source> source, const fs::path& root, std::uint64_t most_bytes)
      : source_(std::move(source)), root_(fs::absolute(root)), kept_(root_, most_bytes) {}
  ~LocalCache() override { kept_.finish(); }

  Entry look_up(const std::string& path) const override { return source_->look_up(path); }
  std::vector<std::string> names_in(const std::string& directory) const override {
    return source_->names_in(directory);
  }
  bool is_remote(const std::string& path) const override { return source_->is_remote(path); }
  std::string canonical(const std::string& path) const override { return source_->canonical(path); }
  core::FileIdentity identify(const std::string& path) const override {
    return source_->identify(path);
  }

  std::string pinned(const std::string& path) const override {
    std::string pinned = source_->pinned(path);
    if (is_hub_path(path)) {
      const HubPath named = parse_hub_path(path);
      const std::string commit = parse_hub_path(pinned).revision;
      if (!is_commit(named.revision) && is_commit(commit)) {
        kept_.note_revision(named.model, named.revision, commit);
      }
    }
    return pinned;
  }

  void interrupt(bool is_set) const noexcept override { source_->interrupt(is_set); }

  Requests requests() const override {
    Requests requests = source_->requests();
    kept_.tell(requests);
    return requests;
  }

  std::unique_ptr<Handle> open(const std::string& path, Access access) const override {
    auto handle = source_->open(path, access);
    const auto place = source_->is_remote(path) ? place_of(root_, path) : std::nullopt;
    const bool has_version = handle->identity().modified_ns != 0;
    if (!place || !has_version || handle->identity().size == 0) return handle;
    auto file = kept_.partial(*place, handle->identity());
    if (!file) return handle;
    return std::make_unique<KeepingHandle>(kept_, std::move(handle), std::move(file));
  }

  std::vector<std::string> local(const std::vector<std::string>& paths) const override {
    std::vector<std::string> found(paths.size());
    core::ThreadPool pool(std::min(paths.size(), asked_at_a_time));
    pool.parallel_for(paths.size(), [&](std::size_t i) { found[i] = local(paths[i]); });
    return std::ranges::find(found, "") == found.end() ? found : paths;
  }

 private:
  // Empty if it is not complete. What a commit has is not asked for again: a header says how long
  // its file is.
  std::string local(const std::string& path) const noexcept try {
    const auto place = source_->is_remote(path) ? place_of(root_, path) : std::nullopt;
    if (!place || !is_there(place->link)) return {};
    kept_.spare(place->link);
    if (is_hub_path(path)) {
      const std::string link = place->link.string();
      const format::RawHeader header = read_header(*source_, link);
      format::parse_header(header.json, header.file_size, link);
    } else {
      const core::FileIdentity version = source_->identify(path);
      if (!leads_to(place->link, place->blob(version), version.size)) return {};
    }
    note_use(fs::canonical(place->link));
    return place->link.string();
  } catch (const std::exception&) {
    return {};
  }

  const std::unique_ptr<const Source> source_;
  const fs::path root_;
  mutable Kept kept_;
};

}  // namespace

std::unique_ptr<Source> make_local_cache(std::unique_ptr<const Source> source,
                                         const std::string& directory, std::uint64_t most_bytes) {
  return std::make_unique<LocalCache>(std::move(source), directory, most_bytes);
}

}  // namespace safeshuffle::source
