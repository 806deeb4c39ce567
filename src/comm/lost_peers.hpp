// The error of a wait for peers that was given up.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace safeshuffle::comm {

/// Throws a TimeoutError whose rank is the first of `missing`, the peers without an answer (empty:
/// unknown); several are listed. `what` is what they were waited for in.
[[noreturn]] void raise_lost_peers(const std::string& what,
                                   const std::vector<std::uint32_t>& missing,
                                   std::chrono::milliseconds limit);

}  // namespace safeshuffle::comm
