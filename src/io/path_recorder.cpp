#include "io/path_recorder.hpp"

namespace safeshuffle::io {

void PathRecorder::direct_read() {
  const std::scoped_lock lock(mutex_);
  direct_ = true;
}

void PathRecorder::fallback(const std::string& file, const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  reasons_.emplace(file, reason);
}

std::string PathRecorder::mode() const {
  const std::scoped_lock lock(mutex_);
  if (!direct_) return "buffered";
  return reasons_.empty() ? "direct" : "mixed";
}

std::vector<std::string> PathRecorder::fallbacks() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::string> lines;
  lines.reserve(reasons_.size());
  for (const auto& [file, reason] : reasons_) {
    std::string& line = lines.emplace_back(file);
    line.append(": direct I/O fell back to buffered: ").append(reason);
  }
  return lines;
}

}  // namespace safeshuffle::io
