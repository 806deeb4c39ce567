// One opening of a GPU, and the owners of what is made through it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <memory>
#include <utility>

#include "device/cuda/gpu.hpp"

namespace safeshuffle::device {

/// Shared by all resources of one opened device. Thread-safe.
class CudaSession {
 public:
  explicit CudaSession(std::shared_ptr<const Gpu> gpu) : gpu_(std::move(gpu)) {}

  const Gpu& gpu() const noexcept { return *gpu_; }
  const std::shared_ptr<const Gpu>& shared_gpu() const noexcept { return gpu_; }

  /// From now on, nothing is freed: freeing would wait for work that may never end.
  void abandon() const noexcept { abandoned_ = true; }

  /// Calls `release` with the GPU current, unless the session is abandoned. What it returns, a
  /// cudaError_t, is dropped, and not left to the checks of the caller.
  template <class Release>
  void give_back(const Release& release) const noexcept {
    if (abandoned_) return;
    try {
      const GpuScope scope(*gpu_);
      if (release() != cudaSuccess) cudaGetLastError();
    } catch (...) {  // the GPU cannot be reached, so there is nothing left to free
    }
  }

 private:
  std::shared_ptr<const Gpu> gpu_;
  mutable std::atomic<bool> abandoned_{false};
};

using SharedSession = std::shared_ptr<const CudaSession>;

/// Owns a handle of the runtime: a stream or an event. The bare handle, `get()`, is its view.
template <class Handle, cudaError_t (*destroy)(Handle)>
struct HandleDeleter {
  using pointer = Handle;
  SharedSession session;
  void operator()(Handle handle) const noexcept {
    session->give_back([handle] { return destroy(handle); });
  }
};

using Stream = std::unique_ptr<cudaStream_t, HandleDeleter<cudaStream_t, cudaStreamDestroy>>;
using Event = std::unique_ptr<cudaEvent_t, HandleDeleter<cudaEvent_t, cudaEventDestroy>>;

/// A stream that does not wait for the default stream. Throws TransportError.
Stream make_stream(const SharedSession& session);

/// An event without timing; `wait_for` sleeps instead of spinning. Throws TransportError.
Event make_event(const SharedSession& session);

/// The same with timing.
Event make_timing_event(const SharedSession& session);

/// Records the work enqueued on `stream` so far.
void record(const Event& event, cudaStream_t stream);

/// Whether the recorded work is done; true if nothing was recorded. Throws TransportError.
bool is_done(const Event& event);

/// Blocks until the recorded work is done. Throws TransportError.
void wait_for(const Event& event);

/// `bytes` > 0 of device memory, aligned to core::page_bytes. Throws MemoryError.
std::shared_ptr<std::byte> allocate_on_gpu(const SharedSession& session, std::uint64_t bytes);

/// `bytes` > 0 of pinned host memory, aligned to core::page_bytes. Throws MemoryError.
std::shared_ptr<std::byte> allocate_pinned(const SharedSession& session, std::uint64_t bytes);

}  // namespace safeshuffle::device
