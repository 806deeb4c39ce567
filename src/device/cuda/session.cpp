#include "device/cuda/session.hpp"

#include <string>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"
#include "core/page.hpp"
#include "device/cuda/call.hpp"

namespace safeshuffle::device {
namespace {

std::string gpu_text(const Gpu& gpu) {
  return "GPU " + std::to_string(gpu.ordinal()) + " (" + gpu.name() + ")";
}

std::string free_memory_text() {
  std::size_t free = 0;
  std::size_t total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return {};
  return ", of which " + std::to_string(free) + " of " + std::to_string(total) + " are free";
}

/// An error other than want of memory is often that of earlier, asynchronous work.
[[noreturn]] void fail_to_allocate(cudaError_t code, const char* operation, std::uint64_t bytes,
                                   const std::string& where) {
  if (code != cudaErrorMemoryAllocation) check_cuda(code, operation);
  cudaGetLastError();
  throw MemoryError(ErrorRecord{.code = static_cast<std::int32_t>(code),
                                .cause = "cannot allocate " + std::to_string(bytes) + " bytes of " +
                                         where + ": " + cudaGetErrorString(code)});
}

/// With room to align; if that is too large a number, more than there is.
std::uint64_t padded(std::uint64_t bytes) {
  return core::checked_add(bytes, core::page_bytes).value_or(bytes);
}

/// The first aligned byte of memory that `release` frees.
template <class Release>
std::shared_ptr<std::byte> own(void* memory, SharedSession session, Release release) {
  const auto skip = -reinterpret_cast<std::uintptr_t>(memory) & (core::page_bytes - 1);
  return {static_cast<std::byte*>(memory) + skip,
          [memory, session = std::move(session), release](std::byte*) {
            session->give_back([&] { return release(memory); });
          }};
}

Event make_event(const SharedSession& session, unsigned flags) {
  const GpuScope scope(session->gpu());
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags");
  return Event(event, {session});
}

}  // namespace

Stream make_stream(const SharedSession& session) {
  const GpuScope scope(session->gpu());
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags");
  return Stream(stream, {session});
}

Event make_event(const SharedSession& session) {
  return make_event(session, cudaEventDisableTiming | cudaEventBlockingSync);
}

Event make_timing_event(const SharedSession& session) {
  return make_event(session, cudaEventBlockingSync);
}

void record(const Event& event, cudaStream_t stream) {
  check_cuda(cudaEventRecord(event.get(), stream), "cudaEventRecord");
}

bool is_done(const Event& event) {
  return is_done(cudaEventQuery(event.get()), "cudaEventQuery");
}

void wait_for(const Event& event) {
  check_cuda(cudaEventSynchronize(event.get()), "cudaEventSynchronize");
}

std::shared_ptr<std::byte> allocate_on_gpu(const SharedSession& session, std::uint64_t bytes) {
  const GpuScope scope(session->gpu());
  void* memory = nullptr;
  const cudaError_t code = cudaMalloc(&memory, padded(bytes));
  if (code != cudaSuccess) {
    fail_to_allocate(code, "cudaMalloc", bytes,
                     "memory of " + gpu_text(session->gpu()) + free_memory_text());
  }
  return own(memory, session, cudaFree);
}

std::shared_ptr<std::byte> allocate_pinned(const SharedSession& session, std::uint64_t bytes) {
  const GpuScope scope(session->gpu());
  void* memory = nullptr;
  const cudaError_t code = cudaHostAlloc(&memory, padded(bytes), cudaHostAllocDefault);
  if (code != cudaSuccess) fail_to_allocate(code, "cudaHostAlloc", bytes, "pinned host memory");
  return own(memory, session, cudaFreeHost);
}

}  // namespace safeshuffle::device
