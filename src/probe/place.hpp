// Which probes belong to which loads.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "safeshuffle/probe.hpp"

#include "core/wire.hpp"

namespace safeshuffle {

/// All but the numbers of ranks and nodes, which a rank alone does not know.
auto fields(core::As<ProbePlace> auto& place) {
  return std::tie(place.host, place.filesystem, place.filesystem_device, place.cpu, place.cpus,
                  place.device);
}

namespace probing {

/// The place of a load from `path` by this rank alone, onto a device with that description.
ProbePlace own_place(const std::string& path, const std::string& device);

/// "host" or the GPU's model, from the description of a device: "host (no GPU)", "NVIDIA H200 at
/// 0000:1B:00.0".
std::string device_model(const std::string& description);

}  // namespace probing
}  // namespace safeshuffle
