// Memory functions of the CUDA runtime.
#include <cstring>
#include <cuda_runtime_api.h>
#include <utility>
#include <vector>

#include "support/simulated_gpu/call.hpp"
#include "support/simulated_gpu/device.hpp"
#include "support/simulated_gpu/faults.hpp"
#include "support/simulated_gpu/memory.hpp"
#include "support/simulated_gpu/settings.hpp"
#include "support/simulated_gpu/stream.hpp"
#include "support/simulated_gpu/violations.hpp"

namespace simulated_gpu {
namespace {

/// One side of a copy: in an allocation, or anywhere in host memory.
struct Side {
  Region region;
  bool pageable() const { return region.allocation == nullptr; }
  bool on_device() const { return region.on_device(); }
};

Side locate(const void* pointer, std::uint64_t bytes, const char* what) {
  if (auto region = find_region(pointer, bytes, what)) return {std::move(*region)};
  return {{nullptr, static_cast<std::byte*>(const_cast<void*>(pointer))}};
}

bool matches(cudaMemcpyKind kind, const Side& target, const Side& source) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !source.on_device() && !target.on_device();
    case cudaMemcpyHostToDevice:
      return !source.on_device() && target.on_device();
    case cudaMemcpyDeviceToHost:
      return source.on_device() && !target.on_device();
    case cudaMemcpyDeviceToDevice:
      return source.on_device() && target.on_device();
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

void enqueue_copy(Stream& stream, Side target, Side source, std::uint64_t bytes) {
  stream.enqueue_work([target = std::move(target), source = std::move(source), bytes] {
    std::memcpy(target.region.data, source.region.data, bytes);
  });
}

/// When the runtime returns, it has copied pageable memory to its own buffer.
void enqueue_staged_copy(Stream& stream, Side target, const Side& source, std::uint64_t bytes) {
  std::vector<std::byte> staged(source.region.data, source.region.data + bytes);
  stream.enqueue_work([target = std::move(target), staged = std::move(staged)] {
    std::memcpy(target.region.data, staged.data(), staged.size());
  });
}

void copy(void* to, const void* from, std::uint64_t bytes, cudaMemcpyKind kind, Stream& stream) {
  if (bytes == 0) return;
  const Side target = locate(to, bytes, "target of a copy");
  const Side source = locate(from, bytes, "source of a copy");
  require(matches(kind, target, source), cudaErrorInvalidValue);
  if (source.pageable() && !target.pageable()) {
    return enqueue_staged_copy(stream, target, source, bytes);
  }
  enqueue_copy(stream, target, source, bytes);
  if (target.pageable()) stream.wait();
}

void release(void* pointer, Allocation::Kind kind, const char* function) {
  if (pointer == nullptr) return;
  const auto allocation = require_allocation(pointer, kind);
  // Waiting would be a deadlock if the NCCL operation needs this thread to continue.
  if (allocation->device.require_no_nccl(function)) allocation->device.synchronize();
  forget(*allocation);
}

void require_may_allocate(Device& device, const char* function) {
  device.require_no_nccl(function);
  require(captures_of_this_thread() == 0, cudaErrorStreamCaptureUnsupported);
}

void allocate(void** pointer, std::uint64_t bytes, Device& device, const char* function,
              void* (*memory)(Device&, std::uint64_t)) {
  require_may_allocate(device, function);
  *pointer = bytes == 0 ? nullptr : memory(device, bytes);
}

}  // namespace
}  // namespace simulated_gpu

using namespace simulated_gpu;

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  return device_call("cudaMalloc", [&](Device& device) {
    allocate(pointer, bytes, device, "cudaMalloc", allocate_device);
  });
}

cudaError_t cudaFree(void* pointer) {
  return device_call("cudaFree",
                     [&](Device&) { release(pointer, Allocation::Kind::device, "cudaFree"); });
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  return device_call("cudaHostAlloc", [&](Device& device) {
    allocate(pointer, bytes, device, "cudaHostAlloc", allocate_pinned);
  });
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* pointer) {
  return device_call("cudaFreeHost",
                     [&](Device&) { release(pointer, Allocation::Kind::pinned, "cudaFreeHost"); });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return device_call("cudaPointerGetAttributes", [&](Device&) {
    *attributes = {};
    const auto region = find_region(pointer, 1, "pointer");
    if (!region) return;
    attributes->type = region->on_device() ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->device = region->allocation->device.ordinal();
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return device_call("cudaMemGetInfo", [&](Device& device) {
    *total = settings().memory;
    *free = settings().memory - device.used_bytes();
  });
}

cudaError_t cudaMemcpy(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind) {
  return device_call("cudaMemcpy", [&](Device& device) {
    const auto stream = device.default_stream();
    copy(target, source, bytes, kind, *stream);
    stream->wait();
    require(device.error() == cudaSuccess, device.error());
  });
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  return device_call("cudaMemcpyAsync",
                     [&](Device&) { copy(target, source, bytes, kind, *find_stream(stream)); });
}

cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t stream) {
  return device_call("cudaMemsetAsync", [&](Device&) {
    const Side side = locate(target, bytes, "target of a fill");
    require(!side.pageable(), cudaErrorInvalidValue);
    find_stream(stream)->enqueue_work(
        [side, value, bytes] { std::memset(side.region.data, value, bytes); });
  });
}

cudaError_t cudaMemset2DAsync(void* target, std::size_t pitch, int value, std::size_t width,
                              std::size_t height, cudaStream_t stream) {
  return device_call("cudaMemset2DAsync", [&](Device&) {
    constexpr std::size_t longest_pitch = 0x7fffffff;  // as on all real GPUs
    require(width <= pitch && pitch <= longest_pitch, cudaErrorInvalidValue);
    if (width == 0 || height == 0) return;
    const Side side = locate(target, (height - 1) * pitch + width, "target of a fill");
    require(!side.pageable(), cudaErrorInvalidValue);
    find_stream(stream)->enqueue_work([side, pitch, value, width, height] {
      for (std::size_t row = 0; row < height; ++row) {
        std::memset(side.region.data + row * pitch, value, width);
      }
    });
  });
}
