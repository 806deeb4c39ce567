// What is allowed but probably not meant.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// The window below which waves are so small that what each costs whatever its size (messages to
/// all ranks, read calls, kernel launches) outweighs the bytes it moves: 1 MiB, or the largest
/// tensor if that is smaller.
std::uint64_t smallest_sensible_window(const Schedule& schedule);

/// One text per finding, for Plan::warnings.
std::vector<std::string> warnings_of(const Schedule& schedule);

}  // namespace safeshuffle::plan
