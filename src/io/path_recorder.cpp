#include "io/path_recorder.hpp"

namespace safeshuffle::io {
namespace {

constexpr std::size_t most_described = 8;  // a checkpoint may have thousands of files

std::string mode_of(std::uint64_t direct_bytes, std::uint64_t buffered_bytes) {
  if (direct_bytes != 0) return buffered_bytes == 0 ? "direct" : "mixed";
  return buffered_bytes == 0 ? "" : "buffered";
}

std::string files_text(std::uint64_t count) {
  return std::to_string(count) + (count == 1 ? " more file" : " more files");
}

}  // namespace

void PathRecorder::add(const std::string& file, const Range& range) {
  const std::scoped_lock lock(mutex_);
  Reads& reads = reads_[file];
  reads.direct += range.direct;
  reads.buffered += range.buffered;
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

void PathRecorder::engine_fallback(std::string reason) {
  const std::scoped_lock lock(mutex_);
  engine_fallback_ = std::move(reason);
}

IoPath PathRecorder::path(const std::string& engine) const {
  const std::scoped_lock lock(mutex_);
  IoPath path;
  path.engine = engine;
  if (!engine_fallback_.empty()) path.fallbacks.push_back(engine_fallback_);
  for (const auto& [file, reads] : reads_) {
    path.direct_bytes += reads.direct;
    path.buffered_bytes += reads.buffered;
    if (reads.fallback.empty() || path.fallback_files++ >= most_described) continue;
    path.fallbacks.push_back(describe(file, reads));
  }
  if (path.fallback_files > most_described) {
    path.fallbacks.push_back(files_text(path.fallback_files - most_described) +
                             ": direct I/O fell back to buffered");
  }
  path.choices = choices_;
  path.mode = mode_of(path.direct_bytes, path.buffered_bytes);
  return path;
}

std::string PathRecorder::describe(const std::string& file, const Reads& reads) {
  std::string line = file + ": direct I/O fell back to buffered";
  if (reads.direct != 0) {
    line.append(" for ").append(std::to_string(reads.buffered)).append(" of ");
    line.append(std::to_string(reads.direct + reads.buffered)).append(" bytes");
  }
  return line.append(": ").append(reads.fallback);
}

}  // namespace safeshuffle::io
