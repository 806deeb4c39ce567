// What a probe measures.
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

/// Threads that pack.
unsigned packing_threads();

/// What moves data after it has been read, as far as the device and the group have it: packing,
/// copies onto a GPU, the exchange of several ranks.
void add_move_trials(ProbeRig& rig, Trials& trials);

/// Connects the transport, which no trial does. Collective. Throws TransportError, TimeoutError.
void connect(ProbeRig& rig);

}  // namespace safeshuffle::probing
