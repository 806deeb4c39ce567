// What ranks on one node share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "safeshuffle/prediction.hpp"

namespace safeshuffle::simulation {

/// What all ranks of one node share. Each has links of its own besides: to its GPU, and to other
/// ranks of the node.
enum class SharedResource : std::uint8_t {
  storage,
  host,    ///< on the host, the cores; on GPUs, what reads the page cache
  copies,  ///< to all GPUs, see MachineModel::host_to_device_node
  network_out,
  network_in,
};
inline constexpr std::size_t resource_count = 5;

/// A step that takes cores, at a rate that was measured while all ranks did the same.
struct CoreRate {
  double node = 0;   ///< bytes per second of all cores together; 0: shares no cores
  double alone = 0;  ///< of a rank whose node does nothing else
};

/// `each_rank`: the measured rate. `threads`: how many of the node's cores a rank uses for it.
CoreRate core_rate(const MachineModel& machine, double each_rank, unsigned threads);

/// Threads with which a rank packs, and so touches most of its memory; it exchanges with one.
unsigned pack_threads(const MachineModel& machine);

}  // namespace safeshuffle::simulation
