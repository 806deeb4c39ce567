// What all functions of the CUDA runtime have in common.
#pragma once

#include <cuda_runtime_api.h>
#include <string>

#include "support/simulated_gpu/device.hpp"

namespace simulated_gpu {

/// Makes a runtime call return this code.
struct CudaFailure {
  cudaError_t code;
};

/// Throws CudaFailure unless the condition holds.
inline void require(bool condition, cudaError_t otherwise) {
  if (!condition) throw CudaFailure{otherwise};
}

/// The last error of this thread. The one that its GPU has failed with, if any, is not stored here.
cudaError_t& last_error();

/// Throws CudaFailure if CUDA functions cannot be used at this point.
void require_callable(const std::string& function);

/// A call that creates no context. The body throws CudaFailure.
template <class Body>
cudaError_t runtime_call(const char* function, const Body& body) noexcept {
  try {
    require_callable(function);
    body();
    return cudaSuccess;
  } catch (const CudaFailure& failure) {
    return last_error() = failure.code;
  }
}

/// A call that creates the primary context of the current GPU, which is passed to the body; on a
/// GPU that has failed, it only returns the error.
template <class Body>
cudaError_t device_call(const char* function, const Body& body) noexcept {
  return runtime_call(function, [&body] {
    Device& device = current_device();
    device.create_context();
    require(device.error() == cudaSuccess, device.error());
    body(device);
  });
}

}  // namespace simulated_gpu
