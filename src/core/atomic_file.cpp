#include "core/atomic_file.hpp"

#include <string>
#include <system_error>
#include <utility>

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

std::string directory_of(const fs::path& path) {
  const fs::path directory = path.parent_path();
  return directory.empty() ? "." : directory.string();
}

}  // namespace

AtomicFile::AtomicFile(fs::path path)
    : path_(std::move(path)),
      temporary_(hidden_beside(path_, ".tmp-")),
      file_(PosixFile::create(temporary_.string(), path_.string())) {}

AtomicFile::~AtomicFile() {
  if (!committed_) undo();
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
  published_ = only_aside_ = true;
  sync_directory(directory_of(path_));
}

void AtomicFile::commit() {
  if (!published_) publish();
  committed_ = true;
  std::error_code ignored;
  if (!aside_.empty()) fs::remove(aside_, ignored);
}

/// Gives the earlier file a second name or, where the filesystem has no hard links, another one:
/// then, for a moment, there is no file at the path.
void AtomicFile::set_aside() {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path_, error).type();
  if (type == fs::file_type::not_found) return;
  if (type == fs::file_type::directory) return;  // which the new file cannot replace
  fs::path aside = hidden_beside(path_, ".old-");
  fs::create_hard_link(path_, aside, error);
  only_aside_ = bool{error};
  if (error) fs::rename(path_, aside, error);
  if (error) raise_errno(error.value(), path_.string(), "cannot set aside the earlier file");
  aside_ = std::move(aside);
}

void AtomicFile::undo() noexcept {
  std::error_code ignored;
  if (!published_) fs::remove(temporary_, ignored);
  if (!aside_.empty()) {
    put_back();
  } else if (published_) {
    fs::remove(path_, ignored);
  }
}

void AtomicFile::put_back() noexcept {
  std::error_code ignored;
  if (only_aside_) {
    fs::rename(aside_, path_, ignored);
  } else {
    fs::remove(aside_, ignored);
  }
}

}  // namespace safeshuffle::core
