// How much of an object is in the page cache.
#pragma once

#include <optional>

#include "source/source.hpp"

namespace safeshuffle::source {

/// The share, 0 to 1, of a sample: four pieces of up to 1 MiB, so that it takes no time even for
/// huge objects; or where that is unknown, of a few pages. Empty if that is unknown, too.
std::optional<double> cached_share(const Handle& handle);

}  // namespace safeshuffle::source
