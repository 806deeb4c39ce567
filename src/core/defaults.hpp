// Defaults of options, and their limits.
#pragma once

#include <cstdint>

#include "safeshuffle/device.hpp"

#include "core/page.hpp"

namespace safeshuffle::core {

inline constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;

/// Of options that depend on the device.
struct Defaults {
  std::uint64_t window = 0;    ///< of PlanOptions::window, in bytes
  std::uint64_t chunk = 0;     ///< of Options::chunk, in bytes
  unsigned least_threads = 0;  ///< of Options::threads; what lies between depends on the cores
  unsigned most_threads = 0;
};

/// Threads that wait for storage need no core, and fewer requests do not keep some disks busy
/// (docs/results.md).
inline constexpr Defaults host_defaults{64 * mebibyte, 8 * mebibyte, 8, 8};

/// Estimates, until they are measured (docs/gpu.md).
inline constexpr Defaults gpu_defaults{256 * mebibyte, 2 * mebibyte, 4, 16};

/// `automatic` counts as the host.
constexpr const Defaults& defaults_on(DeviceKind device) noexcept {
  return device == DeviceKind::cuda ? gpu_defaults : host_defaults;
}

/// Maximum of pinned memory for data on its way to a GPU, in bytes, unless two chunks are more.
inline constexpr std::uint64_t most_ring_bytes = 64 * mebibyte;

inline constexpr std::uint32_t most_reader_threads = 1024;
inline constexpr std::uint64_t smallest_window = page_bytes;
inline constexpr std::uint64_t smallest_chunk = page_bytes;

}  // namespace safeshuffle::core
