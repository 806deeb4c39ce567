#include "source/cached.hpp"

#include <algorithm>
#include <cstdint>

namespace safeshuffle::source {
namespace {

constexpr std::uint64_t most_pieces = 4;
constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;

double share(std::uint64_t part, std::uint64_t all) {
  return static_cast<double>(part) / static_cast<double>(std::max<std::uint64_t>(all, 1));
}

// Estimates are from few pages, whether of a part or of all, and take time for each.
std::optional<double> estimated_share(const Handle& handle, std::uint64_t size) {
  const auto cached = handle.likely_cached_bytes(0, size);
  if (!cached) return {};
  return share(*cached, size);
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
    if (!found) return estimated_share(handle, size);
    cached += *found;
  }
  return share(cached, pieces * bytes);
}

}  // namespace safeshuffle::source
