// The error of a wait for peers that timed out.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "safeshuffle/error.hpp"

namespace safeshuffle::core {

/// A record of kind timeout whose rank is the first of `missing`, the peers that did not answer
/// (empty: unknown); several are listed. `what` is the operation in which they were waited for.
ErrorRecord lost_peers(const std::string& what, const std::vector<std::uint32_t>& missing,
                       std::chrono::milliseconds limit);

}  // namespace safeshuffle::core
