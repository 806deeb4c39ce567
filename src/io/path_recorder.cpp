#include "io/path_recorder.hpp"

#include <algorithm>

namespace safeshuffle::io {
namespace {

constexpr std::size_t most_described = 8;  // a checkpoint may have thousands of files

std::string engine_text(const std::string& engine, const IoPath& path) {
  if (path.device_bytes == 0) return engine;
  const bool alone = path.device_bytes == path.direct_bytes && path.buffered_bytes == 0;
  return alone ? "gds" : "gds+" + engine;
}

std::string mode_of(std::uint64_t direct_bytes, std::uint64_t buffered_bytes) {
  if (direct_bytes != 0) return buffered_bytes == 0 ? "direct" : "mixed";
  return buffered_bytes == 0 ? "" : "buffered";
}

// The ways of falling back.
constexpr const char* to_buffered = ": direct I/O fell back to buffered";
constexpr const char* from_gds = ": gds fell back to posix";

std::string files_text(std::uint64_t count) {
  return std::to_string(count) + (count == 1 ? " more file" : " more files");
}

}  // namespace

void PathRecorder::add(const std::string& file, const Range& range) {
  const std::scoped_lock lock(mutex_);
  Reads& reads = reads_[file];
  reads.direct += range.direct;
  reads.buffered += range.buffered;
  reads.device += range.device;
  if (reads.device_fallback.empty()) reads.device_fallback = range.device_obstacle;
  if (range.choice.empty()) {
    if (reads.fallback.empty()) reads.fallback = range.obstacle;
    return;
  }
  const std::string choice(range.choice);
  const std::string why_not = "no direct I/O: " + range.obstacle;
  if (range.direct != 0) choices_[{true, choice}] += range.direct;
  if (range.buffered != 0) {
    choices_[{false, range.obstacle.empty() ? choice : why_not}] += range.buffered;
  }
}

void PathRecorder::unread(const std::string& file, std::uint64_t bytes, std::string_view choice) {
  const std::scoped_lock lock(mutex_);
  reads_[file].buffered -= bytes;
  if (choice.empty()) return;
  const auto chosen = choices_.find({false, std::string(choice)});
  chosen->second -= bytes;
  if (chosen->second == 0) choices_.erase(chosen);
}

void PathRecorder::engine_fallback(std::string reason) {
  const std::scoped_lock lock(mutex_);
  engine_fallback_ = std::move(reason);
}

IoPath PathRecorder::path(const std::string& engine) const {
  const std::scoped_lock lock(mutex_);
  IoPath path;
  if (!engine_fallback_.empty()) path.fallbacks.push_back(engine_fallback_);
  std::map<std::string_view, std::uint64_t>
      others;  // files that are not described, by what fell back
  for (const auto& [file, reads] : reads_) {
    path.direct_bytes += reads.direct;
    path.buffered_bytes += reads.buffered;
    path.device_bytes += reads.device;
    const auto fallback = fallback_of(reads);
    if (!fallback) continue;
    if (++path.fallback_files > most_described) {
      ++others[fallback->what];
    } else {
      path.fallbacks.push_back(describe(file, *fallback));
    }
  }
  for (const auto& [what, count] : others) {
    path.fallbacks.push_back(files_text(count).append(what));
  }
  path.engine = engine_text(engine, path);
  path.choices = choices_;
  path.mode = mode_of(path.direct_bytes, path.buffered_bytes);
  return path;
}

// Only direct reads go straight into device memory, so the first reason includes the second.
std::optional<PathRecorder::Fallback> PathRecorder::fallback_of(const Reads& reads) {
  const std::uint64_t all = reads.direct + reads.buffered;
  if (!reads.fallback.empty()) return Fallback{to_buffered, reads.fallback, reads.buffered, all};
  if (reads.device_fallback.empty()) return {};
  return Fallback{from_gds, reads.device_fallback, all - reads.device, all};
}

std::string PathRecorder::describe(const std::string& file, const Fallback& fallback) {
  std::string line = file + fallback.what;
  if (fallback.bytes != fallback.of) {
    line.append(" for ").append(std::to_string(fallback.bytes)).append(" of ");
    line.append(std::to_string(fallback.of)).append(" bytes");
  }
  return line.append(": ").append(fallback.reason);
}

}  // namespace safeshuffle::io
