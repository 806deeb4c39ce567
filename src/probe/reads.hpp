// Measuring how fast the loader's reader reads.
#pragma once

#include "probe/rig.hpp"
#include "probe/turns.hpp"

namespace safeshuffle::probing {

/// Reading cold and warm, directly and buffered: by one rank, then by all ranks together if there
/// are several.
void add_read_trials(ProbeRig& rig, Trials& trials);

/// Shrinks the sample to what can be read within the time of a run, from storage if possible, and
/// notes which engine reads. Throws IoError, TimeoutError.
void fit_sample(ProbeRig& rig);

}  // namespace safeshuffle::probing
