#include "io/path_recorder.hpp"

namespace safeshuffle::io {
namespace {

std::string engine_text(const std::string& engine, const IoPath& path) {
  if (path.device_bytes == 0) return engine;
  const bool alone = path.device_bytes == path.direct_bytes && path.buffered_bytes == 0;
  return alone ? "gds" : "gds+" + engine;
}

std::string mode_of(std::uint64_t direct_bytes, std::uint64_t buffered_bytes) {
  if (direct_bytes != 0) return buffered_bytes == 0 ? "direct" : "mixed";
  return buffered_bytes == 0 ? "" : "buffered";
}

// Empty if there is none. Only direct reads go straight into device memory, so the first reason
// includes the second.
std::string fallback_of(const PathRecorder::Range& range) {
  if (range.choice.empty() && !range.obstacle.empty()) {
    return "direct I/O fell back to buffered: " + range.obstacle;
  }
  if (range.device_obstacle.empty()) return {};
  return "gds fell back to posix: " + range.device_obstacle;
}

// A line for each reason: a checkpoint may have thousands of files.
std::vector<std::string> describe(const std::map<std::string, std::string>& fallbacks) {
  std::map<std::string_view, std::vector<std::string_view>> files;
  for (const auto& [file, fallback] : fallbacks) files[fallback].push_back(file);
  std::vector<std::string> lines;
  for (const auto& [fallback, of] : files) {
    std::string line = std::string(of.front()).append(": ").append(fallback);
    const std::size_t more = of.size() - 1;
    if (more != 0) {
      line.append(" (and ").append(std::to_string(more));
      line.append(more == 1 ? " more file)" : " more files)");
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

void PathRecorder::start_over() {
  const std::scoped_lock lock(mutex_);
  direct_ = buffered_ = device_ = 0;
  choices_.clear();
  fallbacks_.clear();
}

void PathRecorder::add(const std::string& file, const Range& range) {
  const std::scoped_lock lock(mutex_);
  direct_ += range.direct;
  buffered_ += range.buffered;
  device_ += range.device;
  if (std::string fallback = fallback_of(range); !fallback.empty()) {
    fallbacks_.try_emplace(file, std::move(fallback));
  }
  if (range.choice.empty()) return;
  const std::string choice(range.choice);
  const std::string why_not = "no direct I/O: " + range.obstacle;
  if (range.direct != 0) choices_[{true, choice}] += range.direct;
  if (range.buffered != 0) {
    choices_[{false, range.obstacle.empty() ? choice : why_not}] += range.buffered;
  }
}

void PathRecorder::unread(std::uint64_t bytes, std::string_view choice) {
  const std::scoped_lock lock(mutex_);
  buffered_ -= bytes;
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
  path.direct_bytes = direct_;
  path.buffered_bytes = buffered_;
  path.device_bytes = device_;
  path.fallback_files = fallbacks_.size();
  path.fallbacks = describe(fallbacks_);
  if (!engine_fallback_.empty()) path.fallbacks.insert(path.fallbacks.begin(), engine_fallback_);
  path.engine = engine_text(engine, path);
  path.choices = choices_;
  path.mode = mode_of(path.direct_bytes, path.buffered_bytes);
  return path;
}

}  // namespace safeshuffle::io
