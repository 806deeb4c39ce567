// A real kernel, compiled by nvcc and launched as any other, to try the simulation on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

namespace safeshuffle::testing {

/// Adds `value` to each byte of device memory.
cudaError_t launch_add(std::byte* data, std::uint64_t bytes, std::uint8_t value,
                       cudaStream_t stream);

/// A kernel that the simulation is told nothing of.
cudaError_t launch_unknown(std::byte* data, cudaStream_t stream);

}  // namespace safeshuffle::testing
