// JSON text as a sequence of events with byte offsets, for validating untrusted files. Needs memory
// for the longest string only and never recurses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace safeshuffle::format {

/// The content of a document, in order. Strings may be moved from.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual void begin_object() = 0;
  virtual void end_object() = 0;
  virtual void begin_array() = 0;
  virtual void end_array() = 0;
  virtual void key(std::string& text) = 0;
  virtual void string(std::string& text) = 0;
  virtual void integer(std::uint64_t value) = 0;
  virtual void null() = 0;

  /// A boolean, or a number that is negative, has a fraction or exponent, or is 2^64 or more.
  virtual void other() = 0;
};

/// A JSON document in a file. Not thread-safe.
class JsonText {
 public:
  /// `text` begins at byte `start` of the file `path`; both must outlive this.
  JsonText(std::string_view text, const std::string& path, std::uint64_t start) noexcept
      : path_(path), start_(start), begin_(text.data()), at_(begin_), end_(begin_ + text.size()) {}

  /// Reports the whole document to `events`, whose exceptions pass through. Throws FormatError
  /// (header_bad_json) unless it is one JSON value, surrounded only by white space, and
  /// (header_not_utf8) if a string is not valid UTF-8.
  void read(JsonEvents& events);

  const std::string& path() const noexcept { return path_; }

  /// Throws FormatError as `read` does, for the last of the first `bytes_read` bytes; `reason` is
  /// appended to the cause.
  [[noreturn]] void refuse(std::size_t bytes_read, const std::string& reason) const;

  /// Offset in the file of the last byte read.
  std::uint64_t offset() const noexcept { return offset_of(at_ - 1); }

  /// Offset in the file of the opening quote of the last string read; valid while it is reported.
  std::uint64_t string_offset() const noexcept;

 private:
  std::uint64_t offset_of(const char* byte) const noexcept {
    return start_ + static_cast<std::uint64_t>(byte - begin_);
  }

  const std::string& path_;
  std::uint64_t start_;
  const char* begin_;
  const char* at_;  // next byte to read
  const char* end_;
};

/// A whole file `path`, for small ones. Throws FormatError if it is not JSON, if an object has a
/// key twice, which is the error's `tensor`, or if it is nested deeper than 32 levels.
nlohmann::json parse_strict(const std::string& json, const std::string& path);

}  // namespace safeshuffle::format
