// The pack kernel: one launch processes a whole table.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>

#include "device/cuda/pack_entry.hpp"

namespace safeshuffle::device {

/// Enqueues the table of make_pack_entries: `count` entries in memory that the current device can
/// read, `tiles` in all. Table and buffers must live until the stream has run it. Does nothing if
/// `tiles` is 0. Returns what the launch returned.
cudaError_t launch_pack(const PackEntry* entries, std::uint32_t count, std::uint64_t tiles,
                        cudaStream_t stream);

/// Loads the kernel on the current device, by a launch that does nothing. Otherwise the first
/// launch of a table would do so, and wait for all running work: a deadlock if that is a collective
/// that waits for this rank. Returns what the launch returned.
cudaError_t load_pack_kernel(cudaStream_t stream);

}  // namespace safeshuffle::device
