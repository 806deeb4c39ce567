#include "pipeline/cached_share.hpp"

#include <algorithm>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"

namespace safeshuffle::pipeline {
namespace {

constexpr std::size_t most_files = 64;
constexpr std::uint64_t pieces = 4;  // per file
constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;

struct Count {
  std::uint64_t bytes = 0;
  std::uint64_t cached = 0;
};

/// Adds the pieces of one file. Returns whether their state is known.
bool add(const source::Handle& file, std::uint64_t size, Count& count) {
  for (std::uint64_t piece = 0; piece < pieces; ++piece) {
    const std::uint64_t begin = size / pieces * piece;
    const std::uint64_t bytes = std::min(piece_bytes, size - begin);
    const auto cached = file.cached_bytes(begin, bytes);
    if (!cached) return false;
    count.bytes += bytes;
    count.cached += *cached;
  }
  return true;
}

}  // namespace

std::optional<double> cached_share(const source::Source& source, std::span<const FileInfo> files,
                                   std::span<const std::uint32_t> chosen) try {
  const std::size_t step = core::ceil_div(chosen.size(), most_files);
  Count count;
  for (std::size_t i = 0; i < chosen.size(); i += step) {
    const FileInfo& info = files[chosen[i]];
    const auto file = source.open(info.path, source::Access::cached);
    if (!add(*file, info.size, count)) return {};
  }
  if (count.bytes == 0) return {};
  return static_cast<double>(count.cached) / static_cast<double>(count.bytes);
} catch (const IoError&) {  // the reader reports it
  return {};
}

}  // namespace safeshuffle::pipeline
