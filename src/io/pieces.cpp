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

void split_range(const ReadRange& range, std::uint64_t size, std::vector<Piece>& pieces) {
  const std::uint64_t end = range.offset + range.bytes;
  for (std::uint64_t begin = range.offset; begin != end;) {
    const std::uint64_t next =
        end - begin <= size ? end : core::align_down(begin + size, core::page_bytes);
    pieces.push_back({range.file, begin, next - begin, range.destination + (begin - range.offset),
                      range.may_leave, range.whole_pages});
    begin = next;
  }
}

}  // namespace

std::vector<Piece> split(std::span<const ReadRange> ranges, std::uint64_t chunk, unsigned threads) {
  const std::uint64_t size = piece_size(ranges, chunk, threads);
  std::vector<Piece> pieces;
  for (const ReadRange& range : ranges) split_range(range, size, pieces);
  std::ranges::stable_sort(pieces, [](const Piece& a, const Piece& b) {
    return std::tie(a.file, a.offset) < std::tie(b.file, b.offset);
  });
  return pieces;
}

}  // namespace safeshuffle::io
