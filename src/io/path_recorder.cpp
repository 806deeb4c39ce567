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

void PathRecorder::direct_read(const std::string& file, std::uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  reads_[file].direct += bytes;
}

void PathRecorder::buffered_read(const std::string& file, std::uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  reads_[file].buffered += bytes;
}

void PathRecorder::fallback(const std::string& file, const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  std::string& first = reads_[file].fallback;
  if (first.empty()) first = reason;
}

IoPath PathRecorder::path(const std::string& engine) const {
  const std::scoped_lock lock(mutex_);
  IoPath path;
  path.engine = engine;
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
