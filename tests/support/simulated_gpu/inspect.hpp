// How a test can inspect and control the simulated GPUs of its process. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace simulated_gpu {

/// Ordinals of the GPUs on which this process has a primary context, ascending.
std::vector<int> devices_with_context();

/// Bytes that are allocated on one GPU by this process.
std::uint64_t device_bytes(int ordinal);

/// Bytes of pinned host memory.
std::uint64_t pinned_bytes();

/// Handles that were made and not destroyed; the default streams do not count.
std::size_t live_streams();
std::size_t live_events();
std::size_t live_communicators();

/// Allocations of device and pinned memory so far.
std::uint64_t allocations_so_far();

/// Kernels launched so far.
std::uint64_t kernel_launches();

/// Operations of NCCL so far, of 16 bytes or more, from or to an address that is not a multiple of
/// 16: allowed, but slow, because NCCL then moves byte by byte.
std::uint64_t unaligned_nccl_operations();

/// Rules that the program has broken so far, one text each. If there are any when the process
/// exits, its status is `violation_status`, whatever it would have been.
std::vector<std::string> violations();
inline constexpr int violation_status = 86;

/// Forgets them: for tests that break rules on purpose.
void clear_violations();

/// The `count`-th copy, fill, launch or NCCL group enqueued from now on (1: the next) ends with
/// cudaErrorIllegalAddress, and so does everything on its GPU from then on. 0: none.
void fail_after(std::uint64_t count);

}  // namespace simulated_gpu
