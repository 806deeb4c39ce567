#pragma once

#include <cstddef>
#include <cuda_runtime_api.h>

#include "simulated/processes.hpp"
#include "support/simulated_gpu/inspect.hpp"

namespace safeshuffle::testing {

/// The exit status of a process that broke a rule of CUDA or NCCL.
constexpr int broke_a_rule = simulated_gpu::violation_status;

inline std::byte* device_memory(std::size_t bytes) {
  void* memory = nullptr;
  EXPECT(cudaMalloc(&memory, bytes) == cudaSuccess);
  return static_cast<std::byte*>(memory);
}

}  // namespace safeshuffle::testing
