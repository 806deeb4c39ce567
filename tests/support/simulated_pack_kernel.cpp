#include "support/simulated_pack_kernel.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/cuda/pack_tile.hpp"

namespace simulated_gpu {
std::byte* host_view(const void* device_pointer);
}

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

}  // namespace

void run_pack_kernel_on_host(void** arguments, unsigned grid_x, unsigned block_x) {
  const auto count = argument<std::uint32_t>(arguments, 1);
  const auto tiles = argument<std::uint64_t>(arguments, 2);
  const auto entries = view_entries(argument<const PackEntry*>(arguments, 0), count);
  for (unsigned block = 0; block < grid_x; ++block) {
    for (unsigned thread = 0; thread < block_x; ++thread) {
      safeshuffle::device::pack_tiles(entries.data(), count, tiles, block, grid_x, thread);
    }
  }
}
