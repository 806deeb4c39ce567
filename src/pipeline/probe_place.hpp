// Which probes belong to which loads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace safeshuffle::pipeline {

/// Of the nodes on which the ranks run, by rank; > 0 of them.
std::uint32_t ranks_per_node(const std::vector<std::string>& hosts);
std::uint32_t node_count(const std::vector<std::string>& hosts);

/// "host" or the GPU's model, from the description of a device: "host (no GPU)", "NVIDIA H200 at
/// 0000:1B:00.0".
std::string device_model(const std::string& description);

}  // namespace safeshuffle::pipeline
