// Transports between GPUs, also where the library was built without NCCL.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/control/control.hpp"
#include "comm/exchange/transport.hpp"
#include "device/device.hpp"

namespace safeshuffle::comm {

/// Why there can be no transport between GPUs, in a few words; empty if there can.
std::string gpu_transport_obstacle();

/// A transport between the GPUs of the ranks of `control`. NCCL's set-up is begun and not waited
/// for. Collective: what one rank throws, all throw; ConfigError without NCCL.
std::unique_ptr<Transport> make_gpu_transport(Control& control,
                                              const std::shared_ptr<device::Device>& device,
                                              std::chrono::milliseconds timeout);

}  // namespace safeshuffle::comm
