// Opening each rank's device, with one outcome for all.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "comm/control/control.hpp"
#include "device/device.hpp"

namespace safeshuffle::comm {

/// Collective: `which` is the same on all ranks. `automatic` opens GPUs if every rank can use one,
/// else the host on all; the device's description then says why. What one rank throws, all throw.
std::shared_ptr<device::Device> open_together(Control& control, const Device& which,
                                              std::uint32_t local_rank,
                                              std::chrono::milliseconds timeout);

}  // namespace safeshuffle::comm
