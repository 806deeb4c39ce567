// Warnings about what is allowed but probably not intended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// The window below which the fixed costs of a wave (messages to all ranks, read calls, kernel
/// launches) outweigh the bytes it moves: 1 MiB, or the largest tensor if that is smaller.
std::uint64_t smallest_practical_window(const Schedule& schedule);

/// One text per finding, for Plan::warnings.
std::vector<std::string> warnings_of(const Schedule& schedule);

}  // namespace safeshuffle::plan
