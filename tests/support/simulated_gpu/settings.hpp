// The simulated machine, as the environment describes it.
#pragma once

#include <cstdint>

namespace simulated_gpu {

struct Settings {
  /// SIMULATED_GPUS: their number (default 1), or "nodriver" for a machine without a CUDA driver.
  bool driver = true;
  int gpus = 1;

  /// SIMULATED_GPU_MEMORY: bytes of each GPU that this process may allocate (default 1 GiB).
  std::uint64_t memory = std::uint64_t{1} << 30;

  /// SIMULATED_GPU_SEED: of the delays (default 1).
  std::uint64_t seed = 1;

  /// SIMULATED_GPU_FAIL_AFTER: see fail_after in inspect.hpp (default 0).
  std::uint64_t fail_after = 0;

  /// SIMULATED_NCCL_PARTING: "stuck" if ncclCommDestroy and ncclCommAbort must not return, as when
  /// a peer on the same node is stopped: they wait until it does the same.
  bool stuck_parting = false;
};

/// Read at the first call; immutable from then on.
const Settings& settings();

}  // namespace simulated_gpu
