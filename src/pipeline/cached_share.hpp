// How much of the files of a load is in the page cache.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "safeshuffle/metadata.hpp"

#include "source/source.hpp"

namespace safeshuffle::pipeline {

/// The share, 0 to 1, of a sample: up to 64 of the files `chosen`, of each what
/// source::cached_share finds. So it takes milliseconds, however large the files are. Empty if
/// there are no files, or if it cannot be found out.
std::optional<double> cached_share(const source::Source& source, std::span<const FileInfo> files,
                                   std::span<const std::uint32_t> chosen);

}  // namespace safeshuffle::pipeline
