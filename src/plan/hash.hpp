// A hash that tells whether two ranks made the same plan.
#pragma once

#include <cstdint>

#include "plan/schedule.hpp"

namespace safeshuffle::plan {

/// XXH3-64 over everything that decides what a load does; paths and modification times of files are
/// left out, because they may differ between nodes.
std::uint64_t hash_of(const Schedule& schedule);

}  // namespace safeshuffle::plan
