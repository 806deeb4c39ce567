#include "source/cached.hpp"

#include <algorithm>
#include <cstdint>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"
#include "core/page.hpp"
#include "core/page_cache.hpp"

namespace safeshuffle::source {
namespace {

constexpr std::uint64_t most_pieces = 4;
constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;

double share(std::uint64_t part, std::uint64_t all) {
  return static_cast<double>(part) / static_cast<double>(std::max<std::uint64_t>(all, 1));
}

}  // namespace

std::optional<double> cached_share(const Handle& handle) {
  const std::uint64_t size = handle.identity().size;
  const std::uint64_t pieces = size <= most_pieces * piece_bytes ? 1 : most_pieces;
  const std::uint64_t step = size / pieces;
  const std::uint64_t bytes = pieces == 1 ? size : piece_bytes;
  std::uint64_t cached = 0;
  for (std::uint64_t piece = 0; piece < pieces; ++piece) {
    const auto found = handle.cached_bytes(piece * step, bytes);
    if (!found) return {};
    cached += *found;
  }
  return share(cached, pieces * bytes);
}

std::optional<double> likely_cached_share(const Handle& handle) {
  if (const auto known = cached_share(handle)) return known;
  const std::uint64_t size = handle.identity().size;
  if (size < most_pieces * piece_bytes) return {};
  const auto cached = handle.sampled_cached_bytes(0, size);
  if (!cached) return {};
  return share(*cached, size);
}

void drop_cached(const Source& source, const std::string& path, std::uint64_t begin,
                 std::uint64_t end) try {
  if (source.is_remote(path)) return;
  begin = core::align_down(begin, core::most_cached_block);
  end = core::align_up(end, core::page_bytes);
  source.open(path, Access::cached)->drop_cached(begin, end - begin);
} catch (const IoError&) {  // whoever reads it next reports that
}

}  // namespace safeshuffle::source
