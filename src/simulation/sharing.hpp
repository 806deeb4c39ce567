// What ranks on one node get of the cores that they share.
#pragma once

#include "safeshuffle/prediction.hpp"

namespace safeshuffle::simulation {

/// A step that takes cores, at a rate that was measured while all ranks did the same.
struct CoreRate {
  double node = 0;   ///< bytes per second of all cores together
  double alone = 0;  ///< of a rank whose node does nothing else
};

/// `each_rank`: the measured rate. `threads`: how many of the node's cores a rank uses for it.
CoreRate core_rate(const MachineModel& machine, double each_rank, unsigned threads);

/// Threads with which a rank packs; it exchanges and touches memory with one of them.
unsigned pack_threads(const MachineModel& machine);

}  // namespace safeshuffle::simulation
