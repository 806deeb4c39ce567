#include "core/new_files.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "safeshuffle/error.hpp"

#include "core/backoff.hpp"
#include "core/deadline.hpp"
#include "core/process.hpp"
#include "core/random.hpp"
#include "core/system_call.hpp"

namespace safeshuffle::core {

namespace fs = std::filesystem;

// --- what is unfinished in this process

namespace {

struct Registry {
  std::timed_mutex mutex;
  std::condition_variable_any changed;
  std::vector<Unfinished*> items;  // the oldest first; guarded by mutex

  bool nothing_settles() const {
    return std::ranges::none_of(items, [](const Unfinished* item) { return item->is_settling(); });
  }
};

// Never destroyed: a signal may come while the process ends.
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

}  // namespace

Unfinished::Lock Unfinished::hold() {
  return Lock(registry().mutex);
}

void Unfinished::track() {
  registry().items.push_back(this);
}

void Unfinished::forget() noexcept {
  std::erase(registry().items, this);
  registry().changed.notify_all();
}

void Unfinished::abandon() noexcept {
  const Lock held = hold();
  roll_back();
  forget();
}

void roll_back_unfinished() noexcept {
  constexpr std::chrono::seconds lock_patience{2};
  constexpr std::chrono::milliseconds settling_patience{500};
  Registry& all = registry();
  std::unique_lock lock(all.mutex, lock_patience);
  if (!lock) return;
  all.changed.wait_for(lock, settling_patience, [&] { return all.nothing_settles(); });
  std::for_each(all.items.rbegin(), all.items.rend(), [](Unfinished* item) { item->roll_back(); });
  lock.release();
}

// --- files

namespace {

constexpr std::string_view new_mark = ".safeshuffle-new-";
constexpr std::string_view old_mark = ".safeshuffle-old-";
constexpr std::size_t random_part = 4;  // bytes, in two digits each

fs::path hidden_beside(const fs::path& path, std::string_view mark) {
  std::string name = "." + path.filename().string();
  return path.parent_path() / name.append(mark).append(hexadecimal(random_bytes(random_part)));
}

/// NAME in a name made by `hidden_beside`; empty if it is not such a name.
std::string name_in(std::string_view hidden, std::string_view mark) {
  const std::size_t at = hidden.rfind(mark);
  if (at == 0 || at == hidden.npos || hidden.front() != '.') return {};
  const std::string_view digits = hidden.substr(at + mark.size());
  const bool is_random = digits.size() == 2 * random_part &&
                         digits.find_first_not_of("0123456789abcdef") == digits.npos;
  return is_random ? std::string(hidden.substr(1, at - 1)) : "";
}

/// The places of hidden files.
std::map<fs::path, fs::path> hidden_files(const fs::path& directory, std::string_view mark,
                                          const NameFilter& chosen) {
  std::map<fs::path, fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = name_in(entry.path().filename().string(), mark);
    if (!name.empty() && chosen(name)) found.emplace(entry.path(), directory / name);
  }
  return found;
}

bool is_vacant(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() == fs::file_type::not_found;
}

/// Checked early: the rename would also replace a device, and would fail only at the end for a
/// directory.
void check_replaceable(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_other(status)) {
    throw IoError(ErrorRecord{.file = path.string(), .cause = "is not a regular file"});
  }
  if (fs::is_directory(status)) raise_errno(EISDIR, path.string(), "cannot create");
}

/// False if the filesystem has no locks: there, no process mistakes the file for a leftover.
bool try_lock(const PosixFile& file) try { return file.try_lock(); } catch (const IoError&) {
  return false;
}

/// Repeated in case another process finds the file between creation and lock, and removes it.
PosixFile create_locked(const std::string& hidden, const std::string& path) {
  for (;;) {
    PosixFile file = PosixFile::create(hidden, path);
    if (!try_lock(file) || file.has_name(hidden)) return file;
  }
}

// A user who does not own a file may be allowed to link it, but not to remove the link.
bool is_own(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && status.st_uid == ::geteuid();
}

bool link(const fs::path& path, const fs::path& name) {
  std::error_code error;
  fs::create_hard_link(path, name, error);
  return !error;
}

}  // namespace

fs::path directory_of(const fs::path& path) {
  const fs::path directory = path.parent_path();
  return directory.empty() ? "." : directory;
}

void remove_leftovers(const fs::path& directory, const NameFilter& chosen) noexcept try {
  std::error_code ignored;
  std::set<fs::path> in_use;
  const auto earlier = hidden_files(directory, old_mark, chosen);
  for (const auto& [hidden, place] : hidden_files(directory, new_mark, chosen)) {
    if (is_unlocked(hidden.string())) {
      fs::remove(hidden, ignored);
    } else {
      in_use.insert(place);
    }
  }
  for (const auto& [hidden, place] : earlier) {
    if (in_use.contains(place)) continue;
    if (is_vacant(place)) {
      fs::rename(hidden, place, ignored);
    } else if (is_unlocked(place.string())) {  // not just published
      fs::remove(hidden, ignored);
    }
  }
} catch (const std::exception&) {  // another time
}

NewFile::NewFile(fs::path path) : path_(std::move(path)), hidden_(hidden_beside(path_, new_mark)) {
  check_replaceable(path_);
  remove_leftovers(directory_of(path_), [name = path_.filename().string()](
                                            const std::string& other) { return other == name; });
  const Lock held = hold();
  file_ = create_locked(hidden_.string(), path_.string());
  track();
}

void NewFile::publish() {
  file_->sync();
  {
    const Lock held = hold();
    set_aside();
    std::error_code error;
    fs::rename(hidden_, path_, error);
    if (error) {
      raise_errno(error.value(), path_.string(), "cannot rename the finished file to this name");
    }
    stage_ = Stage::published;
  }
  sync_directory(directory_of(path_).string());
}

void NewFile::commit() {
  if (stage_ == Stage::writing) publish();
  {
    const Lock held = hold();
    stage_ = Stage::committed;
    forget();
  }
  std::error_code ignored;
  fs::remove(earlier_, ignored);
  file_.reset();
}

/// Links the earlier file to a second name, so that its first one is never vacant. If there are no
/// hard links or it belongs to another user, renames it: then, for a moment, it is.
void NewFile::set_aside() {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path_, error).type();
  if (type == fs::file_type::not_found) return;
  if (type == fs::file_type::directory) return;  // the new file cannot replace it
  const fs::path aside = hidden_beside(path_, old_mark);
  if (!is_own(path_) || !link(path_, aside)) fs::rename(path_, aside, error);
  if (error) raise_errno(error.value(), path_.string(), "cannot set aside the earlier file");
  earlier_ = aside;
}

/// Restores the earlier file, unless the name now belongs to a third file.
void NewFile::roll_back() noexcept {
  if (stage_ == Stage::committed) return;
  std::error_code ignored;
  fs::remove(hidden_, ignored);
  const bool ours = file_->has_name(path_.string());
  if (!earlier_.empty() && (ours || is_vacant(path_))) {
    fs::rename(earlier_, path_, ignored);
  } else {
    if (ours) fs::remove(path_, ignored);
    fs::remove(earlier_, ignored);
  }
}

// --- directories

std::vector<fs::path> missing_directories(fs::path path) {
  std::vector<fs::path> found;
  for (; !path.empty() && is_vacant(path); path = path.parent_path()) {
    if (path.has_filename()) found.push_back(path);  // not one that ends in a slash
  }
  return found;
}

namespace {

/// The content of a lock file, one line.
struct Holder {
  std::string group;
  std::uint32_t rank = 0;
  std::string description;  // for people
};

std::string description_of_this_process() {
  return "process " + std::to_string(::getpid()) + " on " + host_name() + ", since " + utc_now();
}

/// Empty unless the line is complete.
Holder read_holder(const std::string& path) try {
  constexpr std::uint64_t limit = 4096;
  const std::string text = read_text(path, limit);
  if (!text.ends_with('\n')) return {};
  std::istringstream line(text);
  Holder holder;
  line >> holder.group >> holder.rank >> std::ws;
  std::getline(line, holder.description);
  return holder;
} catch (const IoError&) {  // the holder has removed it in the meantime
  return {};
}

[[noreturn]] void raise_held(const fs::path& directory, const Holder& holder) {
  std::string cause = "another process is saving into this directory";
  if (!holder.description.empty()) cause += ": " + holder.description;
  throw ConfigError(ErrorRecord{.file = directory.string(), .cause = std::move(cause)});
}

}  // namespace

NewDirectory::NewDirectory(fs::path path, std::vector<fs::path> missing)
    : path_(std::move(path)),
      missing_(std::move(missing)),
      lock_path_((path_ / ".safeshuffle.lock").string()) {
  const Lock held = hold();
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) {
    roll_back();
    raise_errno(error.value(), path_.string(), "cannot create the directory");
  }
  track();
}

std::uint32_t NewDirectory::lock(const std::string& group, std::uint32_t rank) {
  // For a new holder to write who it is; until then, the file may name the last one.
  Deadline patience(std::chrono::seconds(1));
  for (Backoff backoff; !acquire(group, rank); backoff.pause()) {
    const Holder holder = read_holder(lock_path_);
    if (holder.group == group) return holder.rank;
    if (patience.expired()) raise_held(path_, holder);
  }
  return rank;
}

/// Whether this object now holds the lock. A holder removes the file before it releases the lock,
/// so locking a file that no longer exists has no effect.
bool NewDirectory::acquire(const std::string& group, std::uint32_t rank) {
  const Lock held = hold();
  PosixFile file = PosixFile::open_or_create(lock_path_);
  if (!file.try_lock() || !file.has_name(lock_path_)) return false;
  lock_ = std::move(file);
  const std::string line =
      group + ' ' + std::to_string(rank) + ' ' + description_of_this_process() + '\n';
  lock_->resize(0);
  lock_->write(0, std::as_bytes(std::span(line)));
  lock_->sync();  // makes it visible to other nodes
  return true;
}

void NewDirectory::roll_back() noexcept {
  std::error_code ignored;
  if (lock_) fs::remove(lock_path_, ignored);
  lock_.reset();
  for (const fs::path& path : missing_) fs::remove(path, ignored);  // fails unless empty
}

}  // namespace safeshuffle::core
