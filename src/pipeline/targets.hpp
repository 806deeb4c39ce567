// From a checkpoint and options to targets.
#pragma once

#include <cstdint>

#include "safeshuffle/loader.hpp"

namespace safeshuffle::pipeline {

/// Whether every rank loads the files that the rank of the same number has saved.
bool loads_as_saved(const Options& options, const Checkpoint& checkpoint, std::uint32_t world);

/// Throws IoError if files of a sharded state are missing, PlanError if it would have to be loaded
/// otherwise than it was saved, but records nothing.
void check_sharded_state(const Options& options, const Checkpoint& checkpoint, std::uint32_t world);

}  // namespace safeshuffle::pipeline
