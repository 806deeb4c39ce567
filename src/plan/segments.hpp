// How a tensor is divided for reading.
#pragma once

#include <cstdint>

#include "plan/cut.hpp"

namespace safeshuffle::plan {

/// Half-open range of bytes.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t size() const noexcept { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// The segments of one tensor, in order: the whole tensor if it fits the window, else parts of at
/// most the window. A segment is either whole rows of the cut (see Cut) or lies within one row.
/// Pure arithmetic: no segment is stored anywhere.
///
/// Segments repeat by lines: a line is one row if segments lie within rows, else the whole tensor.
/// All segments of a line except its last have the same size.
class Segments {
 public:
  /// `window` at least 4 KiB.
  Segments(const Cut& cut, std::uint64_t window);

  std::uint64_t count() const noexcept { return lines_ * per_line_; }
  std::uint64_t lines() const noexcept { return lines_; }
  std::uint64_t per_line() const noexcept { return per_line_; }

  /// Whether segments are parts of rows; else they are whole rows.
  bool within_rows() const noexcept { return within_rows_; }

  /// The largest segment, in bytes; the distance of two segments of a line.
  std::uint64_t step() const noexcept { return step_; }

  /// The stored bytes of one segment; index < count().
  Range bytes(std::uint64_t index) const noexcept;

 private:
  std::uint64_t lines_ = 0;
  std::uint64_t line_bytes_ = 0;
  std::uint64_t per_line_ = 0;
  std::uint64_t step_ = 0;
  bool within_rows_ = false;
};

}  // namespace safeshuffle::plan
