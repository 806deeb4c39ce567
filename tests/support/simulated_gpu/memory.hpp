// The memory of simulated GPUs. A device address is reserved and not accessible, so that host code
// that follows a device pointer crashes; the bytes are elsewhere, where the simulation accesses
// them. Device addresses are never reused. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "support/simulated_gpu/device.hpp"

namespace simulated_gpu {

/// Where a kernel's implementation finds the bytes behind a pointer argument of the kernel:
/// device or pinned memory. Any other pointer is a violation and fails the GPU, as a stray access
/// does.
std::byte* host_view(const void* device_pointer);

/// One allocation; owns its bytes.
struct Allocation {
  enum class Kind { device, pinned };

  Kind kind;
  Device& device;
  std::uintptr_t address;  ///< what the program sees
  std::uint64_t bytes;
  std::byte* view;  ///< where the bytes are

  Allocation(Kind of, Device& on, std::uintptr_t at, std::uint64_t size, std::byte* bytes_at)
      : kind(of), device(on), address(at), bytes(size), view(bytes_at) {}
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
};

/// Bytes of an allocation, which it keeps alive.
struct Region {
  std::shared_ptr<Allocation> allocation;
  std::byte* data = nullptr;

  bool on_device() const { return allocation && allocation->kind == Allocation::Kind::device; }
};

/// Filled with a pattern. Throws CudaFailure.
void* allocate_device(Device& device, std::uint64_t bytes);
void* allocate_pinned(Device& device, std::uint64_t bytes);

/// The allocation of this kind that begins at `pointer`. Throws CudaFailure, and reports a
/// violation, if there is none.
std::shared_ptr<Allocation> require_allocation(const void* pointer, Allocation::Kind kind);

/// From now on, the allocation cannot be found.
void forget(const Allocation& allocation);

/// The bytes [pointer, pointer + bytes) of one allocation; none if the pointer is to memory that is
/// unknown to CUDA. Throws CudaFailure, and reports a violation that begins with `what`, if they
/// are out of bounds or in device memory that was freed.
std::optional<Region> find_region(const void* pointer, std::uint64_t bytes,
                                  const std::string& what);

}  // namespace simulated_gpu
