// What the page cache has of an object.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "source/source.hpp"

namespace safeshuffle::source {

/// The share, 0 to 1, of a sample: four pieces of up to 1 MiB, so that it takes no time even for
/// huge objects. Empty if unknown.
std::optional<double> cached_share(const Handle& handle);

/// The same, or an estimate where that is unknown; see Handle::sampled_cached_bytes. Not of small
/// objects, of which there may be thousands: each page of an estimate may cost a read.
std::optional<double> likely_cached_share(const Handle& handle);

/// Drops what the page cache has of these bytes of an object, and of the pages and blocks that they
/// are in. Never fails: what cannot be dropped, such as of an object that cannot be opened, stays.
void drop_cached(const Source& source, const std::string& path, std::uint64_t begin,
                 std::uint64_t end);

}  // namespace safeshuffle::source
