#include "device/cuda/pack_kernel.hpp"

#include <algorithm>

#include "device/cuda/pack_tile.hpp"

namespace safeshuffle::device {
namespace {

/// Four blocks per multiprocessor leave 64 registers per thread; their loads, 64 KiB in flight,
/// saturate memory.
constexpr int blocks_per_multiprocessor = 4;

constexpr std::uint64_t largest_grid = (std::uint64_t{1} << 31) - 1;

__global__ void __launch_bounds__(pack_threads, blocks_per_multiprocessor)
    pack_kernel(const PackEntry* __restrict__ entries, std::uint32_t count, std::uint64_t tiles) {
  pack_tiles(entries, count, tiles, blockIdx.x, gridDim.x, threadIdx.x);
}

cudaError_t launch(const PackEntry* entries, std::uint32_t count, std::uint64_t tiles,
                   unsigned blocks, cudaStream_t stream) {
  void* arguments[] = {&entries, &count, &tiles};
  return cudaLaunchKernel(pack_kernel, dim3(blocks), dim3(pack_threads), arguments, 0, stream);
}

}  // namespace

// One block per tile: the hardware schedules them as others end, however long each one takes.
cudaError_t launch_pack(const PackEntry* entries, std::uint32_t count, std::uint64_t tiles,
                        cudaStream_t stream) {
  if (tiles == 0) return cudaSuccess;
  return launch(entries, count, tiles, static_cast<unsigned>(std::min(tiles, largest_grid)),
                stream);
}

// cudaFuncGetAttributes is documented to load a kernel, too, but CUDA 13.0's asks the driver about
// the kernel without loading it into a context.
cudaError_t load_pack_kernel(cudaStream_t stream) {
  return launch(nullptr, 0, 0, 1, stream);
}

}  // namespace safeshuffle::device
