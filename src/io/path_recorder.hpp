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
    std::string device_obstacle =
        {};  ///< the same of what was to be read straight into device memory
  };

  /// A range that was read. An obstacle is a fallback, without a choice, and so is one on the way
  /// to the device, always; the first ones per file are kept.
  void add(const std::string& file, const Range& range);

  /// Another engine reads than the one that was asked for, or it reads in a roundabout way.
  void engine_fallback(std::string reason);

  /// What was read so far by `engine`.
  IoPath path(const std::string& engine) const;

 private:
  struct Reads {
    std::uint64_t direct = 0;
    std::uint64_t buffered = 0;
    std::uint64_t device = 0;
    std::string fallback;         // the reason, if there was one
    std::string device_fallback;  // the same of straight reads into device memory
  };

  static std::string describe(const std::string& file, const Reads& reads);

  mutable std::mutex mutex_;
  std::map<std::string, Reads> reads_;  // by file
  IoChoices choices_;
  std::string engine_fallback_;  // empty if there is none
};

}  // namespace safeshuffle::io
