// The error of a wait for peers that was given up.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace safeshuffle::comm {

/// Throws a TimeoutError that names `missing`, the peers without an answer (empty: unknown); its
/// rank is the first of them. `what` is what they were waited for in.
[[noreturn]] void raise_lost_peers(const std::string& what,
                                   const std::vector<std::uint32_t>& missing,
                                   std::chrono::milliseconds limit);

}  // namespace safeshuffle::comm
