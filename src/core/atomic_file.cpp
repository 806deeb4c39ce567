#include "core/atomic_file.hpp"

#include <cerrno>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "safeshuffle/error.hpp"

#include "core/leftovers.hpp"
#include "core/system_call.hpp"

namespace safeshuffle::core {
namespace {

namespace fs = std::filesystem;

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

/// False if the filesystem has no locks: there, no process mistakes the file for abandoned.
bool try_lock(const PosixFile& file) try { return file.try_lock(); } catch (const IoError&) {
  return false;
}

/// Uses the name `temporary` only where a file must have one. Creating that is repeated in case
/// another process finds the file between creation and lock, and removes it as abandoned.
PosixFile create(const fs::path& temporary, const fs::path& path) {
  check_name(temporary.string(), path.string());
  if (auto file = PosixFile::create_unnamed(directory_of(path).string(), path.string())) {
    static_cast<void>(try_lock(*file));  // before it has a name that others see
    return std::move(*file);
  }
  for (;;) {
    PosixFile file = PosixFile::create(temporary.string(), path.string());
    if (!try_lock(file) || file.has_name(temporary.string())) return file;
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

NameFilter name_of(const fs::path& path) {
  return [name = path.filename().string()](const std::string& other) { return other == name; };
}

}  // namespace

struct AtomicFile::Beginning {
  fs::path path;
  UnfinishedLock lock;  // until the file is tracked
};

AtomicFile::Beginning AtomicFile::begin(fs::path path) {
  check_replaceable(path);
  recover_leftovers(directory_of(path), name_of(path));
  return {std::move(path), lock_unfinished()};
}

AtomicFile::AtomicFile(fs::path path) : AtomicFile(begin(std::move(path))) {}

AtomicFile::AtomicFile(Beginning beginning)
    : path_(std::move(beginning.path)),
      temporary_(hidden_beside(path_, HiddenFile::unfinished)),
      file_(create(temporary_, path_)) {
  track();
}

AtomicFile::~AtomicFile() {
  const UnfinishedLock lock = lock_unfinished();
  roll_back();
  forget();
}

void AtomicFile::roll_back() noexcept {
  std::error_code ignored;
  if (stage_ == Stage::writing) fs::remove(temporary_, ignored);  // if it already has a name
  if (stage_ != Stage::committed) withdraw();
}

void AtomicFile::write(std::uint64_t offset, std::span<const std::byte> data) {
  synced_ = false;
  file_.write(offset, data);
}

void AtomicFile::resize(std::uint64_t size) {
  synced_ = false;
  file_.resize(size);
}

void AtomicFile::sync() {
  if (synced_) return;
  file_.sync();
  synced_ = true;
}

void AtomicFile::publish() {
  sync();
  {
    const UnfinishedLock lock = lock_unfinished();
    if (!file_.has_name(temporary_.string())) file_.link_as(temporary_.string());
    set_aside();
    rename_file(temporary_.string(), path_.string());
    stage_ = Stage::published;
  }
  sync_directory(directory_of(path_).string());
}

void AtomicFile::commit() {
  if (!published()) publish();
  {
    const UnfinishedLock lock = lock_unfinished();
    stage_ = Stage::committed;
    forget();
  }
  std::error_code ignored;
  if (!aside_.empty()) fs::remove(aside_, ignored);
  file_.unlock();
  remove_superseded(directory_of(path_), name_of(path_));
}

/// Links the earlier file to a second name or, if there are no hard links or it belongs to another
/// user, renames it: then, for a moment, there is no file at the path.
void AtomicFile::set_aside() {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path_, error).type();
  if (type == fs::file_type::not_found) return;
  if (type == fs::file_type::directory) return;  // the new file cannot replace it
  fs::path aside = hidden_beside(path_, HiddenFile::earlier);
  if (!is_own(path_) || !link(path_, aside)) fs::rename(path_, aside, error);
  if (error) raise_errno(error.value(), path_.string(), "cannot set aside the earlier file");
  aside_ = std::move(aside);
}

/// Restores the earlier file, unless the name now belongs to a third file.
void AtomicFile::withdraw() noexcept {
  std::error_code ignored;
  const bool vacant = !fs::exists(fs::symlink_status(path_, ignored));
  const bool ours = vacant || (published() && file_.has_name(path_.string()));
  if (ours && !aside_.empty()) {
    fs::rename(aside_, path_, ignored);
  } else {
    if (ours) fs::remove(path_, ignored);
    fs::remove(aside_, ignored);
  }
}

}  // namespace safeshuffle::core
