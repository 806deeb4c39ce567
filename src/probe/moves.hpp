// Measuring what moves data after it has been read: packing, copies onto a GPU, the exchange.
#pragma once

#include "probe/rig.hpp"
#include "probe/turns.hpp"

namespace safeshuffle::probing {

/// Threads that pack.
unsigned packing_threads();

/// What the device and the group have: copies onto the device only if there are any, the exchange
/// only with several ranks.
void add_move_trials(ProbeRig& rig, Trials& trials);

/// Connects the transport, which no trial does. Collective. Throws TransportError, TimeoutError.
void connect(ProbeRig& rig);

}  // namespace safeshuffle::probing
