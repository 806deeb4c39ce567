// What a reader turned out to do.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace safeshuffle::io {

/// Collects the path that reads take. Thread-safe.
class PathRecorder {
 public:
  /// A read bypassed the page cache.
  void direct_read();

  /// A file that was to be read directly is not; the first reason per file counts.
  void fallback(const std::string& file, const std::string& reason);

  /// "buffered", "direct", or "mixed".
  std::string mode() const;

  /// One line per file, in path order.
  std::vector<std::string> fallbacks() const;

 private:
  mutable std::mutex mutex_;
  bool direct_ = false;
  std::map<std::string, std::string> reasons_;  // by file
};

}  // namespace safeshuffle::io
