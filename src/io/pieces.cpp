#include "io/pieces.hpp"

#include <algorithm>
#include <tuple>

#include "core/arithmetic.hpp"
#include "core/page.hpp"

namespace safeshuffle::io {
namespace {

// Below this, handing work to another thread costs more than it gains.
constexpr std::uint64_t smallest_share = std::uint64_t{256} << 10;

std::uint64_t piece_size(std::span<const ReadRange> ranges, std::uint64_t chunk, unsigned threads) {
  std::uint64_t total = 0;
  for (const ReadRange& range : ranges) total += range.bytes;
  const std::uint64_t share = std::max(core::ceil_div(total, threads), smallest_share);
  return core::align_down(std::min(core::align_up(share, core::page_bytes), chunk),
                          core::page_bytes);
}

// `next`: where the piece ends that begins at an offset of a range with this end.
template <class Next>
std::vector<Piece> split(std::span<const ReadRange> ranges, const Next& next) {
  std::vector<Piece> pieces;
  for (const ReadRange& range : ranges) {
    const std::uint64_t range_end = range.offset + range.bytes;
    for (std::uint64_t begin = range.offset; begin != range_end;) {
      const std::uint64_t end = std::min(next(begin, range_end), range_end);
      pieces.push_back({range.file, begin, end - begin, range.destination + (begin - range.offset),
                        range.may_leave, range.whole_pages});
      begin = end;
    }
  }
  std::ranges::stable_sort(pieces, [](const Piece& a, const Piece& b) {
    return std::tie(a.file, a.offset) < std::tie(b.file, b.offset);
  });
  return pieces;
}

}  // namespace

std::vector<Piece> split_for(unsigned threads, std::span<const ReadRange> ranges,
                             std::uint64_t chunk) {
  const std::uint64_t size = piece_size(ranges, chunk, threads);
  return split(ranges, [size](std::uint64_t begin, std::uint64_t range_end) {
    return range_end - begin <= size ? range_end : core::align_down(begin + size, core::page_bytes);
  });
}

std::vector<Piece> split_at_chunks(std::span<const ReadRange> ranges, std::uint64_t chunk) {
  return split(ranges,
               [chunk](std::uint64_t begin, std::uint64_t) { return (begin / chunk + 1) * chunk; });
}

}  // namespace safeshuffle::io
