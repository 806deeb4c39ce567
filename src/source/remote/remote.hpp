// Objects at URLs.
#pragma once

#include <chrono>
#include <memory>

#include "safeshuffle/options.hpp"

#include "source/source.hpp"

namespace safeshuffle::source {

/// Of the option, where it is 0.
inline constexpr unsigned default_connections = 16;

/// Paths are URLs; those of directories are without the slash at the end. Nothing is asked for
/// before it is needed. Requests are repeated for as long as `patience`. Throws ConfigError if a
/// URL cannot be, because there is no libcurl or it was built without.
std::unique_ptr<Source> make_remote(const RemoteOptions& options,
                                    std::chrono::milliseconds patience);

}  // namespace safeshuffle::source
