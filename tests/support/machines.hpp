// Invented machines for tests of predictions, with round numbers.
#pragma once

#include <cstdint>

#include "safeshuffle/prediction.hpp"

namespace safeshuffle::testing {

/// Nodes with GPUs and 4 cores: storage 2 GB/s for a rank and 4 for a node, page cache 8 and 16,
/// PCIe 10, packing 100, exchange 20, network of a node 10 GB/s; waves take nothing.
inline MachineModel gpu_machine(std::uint32_t ranks_per_node = 4) {
  MachineModel machine;
  machine.name = "gpus";
  machine.device = DeviceKind::cuda;
  machine.ranks_per_node = ranks_per_node;
  machine.cores = 4;
  machine.costs = {.read_cold_direct_rank = 2e9,
                   .read_cold_direct_node = 4e9,
                   .read_warm_rank = 8e9,
                   .read_warm_node = 16e9,
                   .pack = 100e9,
                   .pack_convert = 50e9,
                   .host_to_device = 10e9,
                   .exchange = 20e9,
                   .wave_seconds = 1e-12};
  machine.network_node = 10e9;
  return machine;
}

/// A node with 2 cores, measured with 2 ranks: storage 2 GB/s for a rank and 4 for the node, page
/// cache 4 and 6, packing 3, converting 2, exchange 3, first touch 6 GB/s for each rank.
inline MachineModel host_machine() {
  MachineModel machine;
  machine.name = "host";
  machine.ranks_per_node = 2;
  machine.cores = 2;
  machine.costs = {.read_cold_direct_rank = 2e9,
                   .read_cold_direct_node = 4e9,
                   .read_warm_rank = 4e9,
                   .read_warm_node = 6e9,
                   .first_touch = 6e9,
                   .pack = 3e9,
                   .pack_convert = 2e9,
                   .exchange = 3e9,
                   .wave_seconds = 1e-12};
  return machine;
}

}  // namespace safeshuffle::testing
