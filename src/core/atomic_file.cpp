#include "core/atomic_file.hpp"

#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "safeshuffle/error.hpp"

#include "core/random.hpp"
#include "core/system_call.hpp"

namespace safeshuffle::core {
namespace {

namespace fs = std::filesystem;

/// A name beside `path` that nobody else has, hidden so that it is never taken for part of a
/// checkpoint.
fs::path hidden_beside(const fs::path& path, const char* what) {
  std::string name = path.filename().string();
  name.insert(name.begin(), '.');
  return path.parent_path() / name.append(what).append(hexadecimal(random_bytes(8)));
}

PosixFile create(const fs::path& temporary, const fs::path& path) {
  std::error_code ignored;
  if (fs::is_other(fs::status(path, ignored))) {  // the rename would replace a device, too
    throw IoError(ErrorRecord{.file = path.string(), .cause = "is not a regular file"});
  }
  return PosixFile::create(temporary.string(), path.string());
}

// Who does not own a file may be allowed to link it, but not to remove the link.
bool is_own(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && status.st_uid == ::geteuid();
}

bool link(const fs::path& path, const fs::path& name) {
  std::error_code error;
  fs::create_hard_link(path, name, error);
  return !error;
}

std::string directory_of(const fs::path& path) {
  const fs::path directory = path.parent_path();
  return directory.empty() ? "." : directory.string();
}

}  // namespace

AtomicFile::AtomicFile(fs::path path)
    : path_(std::move(path)),
      temporary_(hidden_beside(path_, ".tmp-")),
      file_(create(temporary_, path_)) {}

AtomicFile::~AtomicFile() {
  std::error_code ignored;
  if (stage_ == Stage::writing) fs::remove(temporary_, ignored);
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
  set_aside();
  rename_file(temporary_.string(), path_.string());
  stage_ = Stage::published;
  sync_directory(directory_of(path_));
}

void AtomicFile::commit() {
  if (!published()) publish();
  stage_ = Stage::committed;
  std::error_code ignored;
  if (!aside_.empty()) fs::remove(aside_, ignored);
}

/// Gives the earlier file a second name or, where there are no hard links or it is another user's,
/// another one: then, for a moment, there is no file at the path.
void AtomicFile::set_aside() {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path_, error).type();
  if (type == fs::file_type::not_found) return;
  if (type == fs::file_type::directory) return;  // which the new file cannot replace
  fs::path aside = hidden_beside(path_, ".old-");
  if (!is_own(path_) || !link(path_, aside)) fs::rename(path_, aside, error);
  if (error) raise_errno(error.value(), path_.string(), "cannot set aside the earlier file");
  aside_ = std::move(aside);
}

/// Puts the earlier file back, unless what has the name now is neither it nor the new one.
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
