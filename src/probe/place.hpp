// Which probes belong to which loads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "safeshuffle/probe.hpp"

#include "core/wire.hpp"

namespace safeshuffle::probing {

/// The place of a load from `path` by this rank alone, onto a device with that description.
ProbePlace own_place(const std::string& path, const std::string& device);

/// All but the numbers of ranks and nodes, which a rank alone does not know.
void encode(const ProbePlace& place, core::WireWriter& out);
ProbePlace decode_place(core::WireReader& in);

/// "host" or the GPU's model, from the description of a device: "host (no GPU)", "NVIDIA H200 at
/// 0000:1B:00.0".
std::string device_model(const std::string& description);

}  // namespace safeshuffle::probing
