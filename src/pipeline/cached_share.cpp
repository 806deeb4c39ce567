#include "pipeline/cached_share.hpp"

#include <cstddef>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"
#include "source/cached.hpp"

namespace safeshuffle::pipeline {
namespace {

constexpr std::size_t most_files = 64;

}  // namespace

std::optional<double> cached_share(const source::Source& source, std::span<const FileInfo> files,
                                   std::span<const std::uint32_t> chosen) try {
  const std::size_t step = core::ceil_div(chosen.size(), most_files);
  double bytes = 0;
  double cached = 0;
  for (std::size_t i = 0; i < chosen.size(); i += step) {
    const FileInfo& info = files[chosen[i]];
    const auto share = source::cached_share(*source.open(info.path, source::Access::cached));
    if (!share) return {};
    bytes += static_cast<double>(info.size);
    cached += *share * static_cast<double>(info.size);
  }
  if (bytes == 0) return {};
  return cached / bytes;
} catch (const IoError&) {  // the reader reports it
  return {};
}

}  // namespace safeshuffle::pipeline
