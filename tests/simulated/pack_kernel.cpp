// The pack kernel of a simulated GPU: the same code, thread after thread.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/cuda/pack_tile.hpp"
#include "support/simulated_gpu/kernels.hpp"
#include "support/simulated_gpu/memory.hpp"

namespace {

using safeshuffle::device::PackEntry;

template <typename T>
T argument(void** arguments, int index) {
  return *static_cast<const T*>(arguments[index]);
}

/// The table with addresses that the CPU can use, as aligned as those of the GPU.
std::vector<PackEntry> view_entries(const PackEntry* entries, std::uint32_t count) {
  const auto* const begin = reinterpret_cast<const PackEntry*>(simulated_gpu::host_view(entries));
  std::vector<PackEntry> views(begin, begin + count);
  for (PackEntry& entry : views) {
    entry.source = simulated_gpu::host_view(entry.source);
    entry.destination = simulated_gpu::host_view(entry.destination);
  }
  return views;
}

void run(void** arguments, dim3 grid, dim3 block) {
  const auto count = argument<std::uint32_t>(arguments, 1);
  const auto tiles = argument<std::uint64_t>(arguments, 2);
  if (tiles == 0) return;  // launched only to be loaded: there is no table
  const auto entries = view_entries(argument<const PackEntry*>(arguments, 0), count);
  for (unsigned x = 0; x < grid.x; ++x) {
    for (unsigned thread = 0; thread < block.x; ++thread) {
      safeshuffle::device::pack_tiles(entries.data(), count, tiles, x, grid.x, thread);
    }
  }
}

const bool registered = [] {
  simulated_gpu::register_kernel(
      "pack_kernel", {sizeof(const PackEntry*), sizeof(std::uint32_t), sizeof(std::uint64_t)}, run);
  return true;
}();

}  // namespace
