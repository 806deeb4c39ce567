#include "simulated/sample_kernel.hpp"

#include <cuda_runtime.h>

namespace safeshuffle::testing {
namespace {

__global__ void add_to_bytes(std::byte* data, std::uint64_t bytes, std::uint8_t value) {
  const std::uint64_t index = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index >= bytes) return;
  data[index] = static_cast<std::byte>(static_cast<std::uint8_t>(data[index]) + value);
}

__global__ void unknown_to_simulation(std::byte* data) {
  *data = std::byte{0};
}

}  // namespace

cudaError_t launch_add(std::byte* data, std::uint64_t bytes, std::uint8_t value,
                       cudaStream_t stream) {
  constexpr unsigned block = 128;
  const auto grid = static_cast<unsigned>((bytes + block - 1) / block);
  add_to_bytes<<<grid, block, 0, stream>>>(data, bytes, value);
  return cudaGetLastError();
}

cudaError_t launch_unknown(std::byte* data, cudaStream_t stream) {
  unknown_to_simulation<<<1, 1, 0, stream>>>(data);
  return cudaGetLastError();
}

}  // namespace safeshuffle::testing
