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
    std::uint64_t direct = 0;      ///< bytes read bypassing the page cache
    std::uint64_t buffered = 0;    ///< bytes read through the page cache
    std::uint64_t device = 0;      ///< of the direct bytes, those read straight into device memory
    std::string_view choice = {};  ///< why automatic mode chose that; empty if the caller chose
    std::string obstacle = {};  ///< why not all was read directly that was to be; empty if it was
    /// The same of what was to be read straight into device memory.
    std::string device_obstacle = {};
  };

  /// A range that was read. An obstacle is a fallback, without a choice, and so is one on the way
  /// to the device, always.
  void add(const std::string& file, const Range& range);

  /// So many bytes that count as read through the page cache were not read after all; `choice` is
  /// that of their range.
  void unread(std::uint64_t bytes, std::string_view choice);

  /// Another engine reads than the one that was asked for, or it reads in a roundabout way.
  void engine_fallback(std::string reason);

  /// Forgets all ranges.
  void start_over();

  /// What was read so far by `engine`.
  IoPath path(const std::string& engine) const;

 private:
  mutable std::mutex mutex_;
  std::uint64_t direct_ = 0;
  std::uint64_t buffered_ = 0;
  std::uint64_t device_ = 0;
  IoChoices choices_;
  std::string engine_fallback_;                   // empty if there is none
  std::map<std::string, std::string> fallbacks_;  // by file: the first
};

}  // namespace safeshuffle::io
