#include "plan/segments.hpp"

#include <algorithm>
#include <bit>

#include "core/arithmetic.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::plan {
namespace {

// Where a segment starts decides where its data starts in the arenas. These granules keep that
// aligned for all usual shapes, even when a conversion halves the size of elements.
constexpr std::uint64_t segment_byte_granule = 2 * arena_alignment;
constexpr std::uint64_t segment_row_granule = arena_alignment;

std::uint64_t rows_per_segment(std::uint64_t rows_that_fit) {
  return rows_that_fit >= segment_row_granule ? core::align_down(rows_that_fit, segment_row_granule)
                                              : std::bit_floor(rows_that_fit);
}

}  // namespace

Segments::Segments(const Cut& cut, std::uint64_t window) {
  const std::uint64_t bytes = cut.rows * cut.row_bytes;
  if (bytes == 0) return;
  if (bytes <= window) {  // the usual case, without a division
    lines_ = per_line_ = 1;
    line_bytes_ = step_ = bytes;
    return;
  }
  within_rows_ = cut.row_bytes > window;
  line_bytes_ = within_rows_ ? cut.row_bytes : bytes;
  step_ = within_rows_ ? core::align_down(window, segment_byte_granule)
                       : rows_per_segment(window / cut.row_bytes) * cut.row_bytes;
  lines_ = bytes / line_bytes_;
  per_line_ = core::ceil_div(line_bytes_, step_);
}

Range Segments::bytes(std::uint64_t index) const noexcept {
  const std::uint64_t line = index / per_line_ * line_bytes_;
  const std::uint64_t begin = index % per_line_ * step_;
  return {line + begin, line + std::min(begin + step_, line_bytes_)};
}

}  // namespace safeshuffle::plan
