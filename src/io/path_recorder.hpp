// Records how a reader actually read.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "io/reader.hpp"

namespace safeshuffle::io {

/// Collects how files were read. Thread-safe.
class PathRecorder {
 public:
  /// A range of a file.
  struct Range {
    std::uint64_t direct = 0;    ///< bytes read bypassing the page cache
    std::uint64_t buffered = 0;  ///< bytes read through the page cache
    std::string_view choice;     ///< why automatic mode chose that; empty if the caller chose
    std::string obstacle;        ///< why not all was read directly that was to be; empty if it was
  };

  /// A range that was read. Without a choice, an obstacle is a fallback; the first one per file is
  /// kept.
  void add(const std::string& file, const Range& range);

  /// Another engine reads than the one that was asked for.
  void engine_fallback(std::string reason);

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
  IoChoices choices_;
  std::string engine_fallback_;  // empty if there is none
};

}  // namespace safeshuffle::io
