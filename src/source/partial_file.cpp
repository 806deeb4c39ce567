#include "source/partial_file.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <utility>

#include "safeshuffle/error.hpp"

#include "core/backoff.hpp"
#include "core/deadline.hpp"
#include "core/new_files.hpp"

namespace safeshuffle::source {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t most_ranges_bytes = std::uint64_t{64} << 20;
constexpr std::chrono::seconds lock_patience{30};

std::string ranges_path(const std::string& path) {
  return path + ".ranges";
}

std::string incomplete_path(const std::string& path) {
  return path + ".incomplete";
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

}  // namespace

// Who has it locked may remove it: then another one has the name.
core::PosixFile open_locked(const std::string& path) {
  const core::Deadline deadline(lock_patience);
  core::Backoff backoff;
  for (;;) {
    auto file = core::PosixFile::open_or_create(path);
    if (file.try_lock() && file.has_name(path)) return file;
    if (deadline.expired()) {
      throw IoError(ErrorRecord{.file = path, .cause = "another process keeps it locked"});
    }
    backoff.pause();
  }
}

void ByteRanges::add(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end) return;
  auto next = ends_.upper_bound(begin);
  if (next != ends_.begin() && std::prev(next)->second >= begin) {
    --next;
    begin = next->first;
  }
  while (next != ends_.end() && next->first <= end) {
    end = std::max(end, next->second);
    next = ends_.erase(next);
  }
  ends_[begin] = end;
}

bool ByteRanges::cover(std::uint64_t begin, std::uint64_t end) const {
  const auto next = ends_.upper_bound(begin);
  return begin >= end || (next != ends_.begin() && std::prev(next)->second >= end);
}

std::string ByteRanges::text() const {
  std::ostringstream out;
  for (const auto& [begin, end] : ends_) out << begin << ' ' << end << '\n';
  return out.str();
}

void ByteRanges::add(const std::string& text, std::uint64_t size) {
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    const bool is_whole = !in.eof();
    if (words >> begin >> end && words.eof() && is_whole && end <= size) add(begin, end);
  }
}

// What is noted of a file that is gone, or that somebody has cut, says nothing of this one.
PartialFile::PartialFile(std::string path, std::uint64_t size)
    : path_(std::move(path)), size_(size) {
  std::error_code ignored;
  if (is_there(path_) && fs::file_size(path_, ignored) != size_) fs::remove(path_);
  if (is_there(path_)) {
    file_ = core::PosixFile::open(path_);
    there_.add(0, size_);
    return;
  }
  const core::PosixFile noted = open_locked(ranges_path(path_));
  if (fs::file_size(incomplete_path(path_), ignored) != size_) noted.resize(0);
  file_ = core::PosixFile::open_or_create(incomplete_path(path_));
  file_->lock_shared();
  file_->resize(size_);
  there_.add(core::read_text(ranges_path(path_), most_ranges_bytes), size_);
}

bool PartialFile::has(std::uint64_t offset, std::uint64_t bytes) const {
  return there_.cover(offset, offset + bytes);
}

void PartialFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  file_->read(offset, to);
}

void PartialFile::write(std::uint64_t offset, std::span<const std::byte> data) {
  file_->write(offset, data);
  const std::scoped_lock lock(mutex_);
  written_.add(offset, offset + data.size());
}

// The one that locks last finds that nothing is missing, and that no other has the file locked.
bool PartialFile::finish() {
  if (there_.cover(0, size_) && is_there(path_)) return true;
  file_->sync();
  const core::PosixFile noted = open_locked(ranges_path(path_));
  const core::PosixFile file = *std::move(file_);  // unlocked before `noted`
  if (is_there(path_)) {                           // since this was made
    fs::remove(incomplete_path(path_));
    fs::remove(ranges_path(path_));
    return true;
  }
  if (!file.has_name(incomplete_path(path_))) return false;  // somebody has removed it meanwhile
  ByteRanges all;
  all.add(core::read_text(ranges_path(path_), most_ranges_bytes), size_);
  {
    const std::scoped_lock lock(mutex_);
    all.add(written_.text(), size_);
  }
  if (all.cover(0, size_) && file.try_lock()) {
    fs::rename(incomplete_path(path_), path_);
    core::sync_directory(fs::path(path_).parent_path().string());
    fs::remove(ranges_path(path_));
    return true;
  }
  const std::string text = all.text();
  noted.resize(0);  // a process that is killed must not leave a mixture
  noted.write(0, std::as_bytes(std::span(text)));
  noted.sync();
  return false;
}

}  // namespace safeshuffle::source
