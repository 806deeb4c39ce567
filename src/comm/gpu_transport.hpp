// Transports between GPUs, also where the library was built without NCCL.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "safeshuffle/bootstrap.hpp"

#include "comm/transport.hpp"
#include "device/device.hpp"

namespace safeshuffle::comm {

/// Why there can be no transport between GPUs, in a few words; empty if there can.
std::string gpu_transport_obstacle();

/// A transport between the GPUs of the ranks of `control`, which goes on gathering texts. NCCL's
/// set-up is begun and not waited for. Collective: what one rank throws, all throw; ConfigError in
/// a build without NCCL.
std::unique_ptr<Transport> make_gpu_transport(std::shared_ptr<Transport> control,
                                              std::shared_ptr<device::Device> device,
                                              std::chrono::milliseconds timeout);

/// The same for ranks that have only a rendezvous address. Each opens its GPU by `open`,
/// allocates what it needs on it, and waits until all have joined: what one throws until then, all
/// throw.
std::unique_ptr<Transport> make_gpu_transport(
    const Bootstrap& bootstrap, const std::function<std::shared_ptr<device::Device>()>& open);

}  // namespace safeshuffle::comm
