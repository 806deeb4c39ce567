// The window of a plan whose options give none.
#pragma once

#include <cstdint>

#include "safeshuffle/options.hpp"

namespace safeshuffle::plan {

/// In bytes. On the host, data from storage gets small windows, which stay in a cache of the CPU
/// until they are packed: that is faster (docs/results/2026-11-25-windows.md). But they mean more
/// waves, for which ranks wait: too many of cached files, or between nodes.
std::uint64_t default_window(const Site& site);

}  // namespace safeshuffle::plan
