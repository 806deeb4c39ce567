// Records how a reader actually read.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "io/reader.hpp"

namespace safeshuffle::io {

/// Collects how files were read. Thread-safe.
class PathRecorder {
 public:
  /// Bytes of a file that were read bypassing the page cache.
  void direct_read(const std::string& file, std::uint64_t bytes);

  /// Bytes of a file that were read through the page cache.
  void buffered_read(const std::string& file, std::uint64_t bytes);

  /// A file that should be read directly is not, or only in part; the first reason per file is
  /// kept.
  void fallback(const std::string& file, const std::string& reason);

  /// What was read so far by `engine`.
  IoPath path(const std::string& engine) const;

 private:
  struct Reads {
    std::uint64_t direct = 0;
    std::uint64_t buffered = 0;
    std::string fallback;  // the reason, if there was one
  };

  static std::string describe(const std::string& file, const Reads& reads);

  mutable std::mutex mutex_;
  std::map<std::string, Reads> reads_;  // by file
};

}  // namespace safeshuffle::io
