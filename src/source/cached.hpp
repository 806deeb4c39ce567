// How much of an object is in the page cache.
#pragma once

#include <optional>

#include "source/source.hpp"

namespace safeshuffle::source {

/// The share, 0 to 1, of a sample: four pieces of up to 1 MiB, so that it takes no time even for
/// huge objects. Empty if unknown.
std::optional<double> cached_share(const Handle& handle);

/// The same, or an estimate where that is unknown; see Handle::sampled_cached_bytes. Not of small
/// objects, of which there may be thousands: each page of an estimate may cost a read.
std::optional<double> likely_cached_share(const Handle& handle);

}  // namespace safeshuffle::source
