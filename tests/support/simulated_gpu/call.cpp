#include "support/simulated_gpu/call.hpp"

#include "support/simulated_gpu/settings.hpp"
#include "support/simulated_gpu/stream.hpp"
#include "support/simulated_gpu/violations.hpp"

namespace simulated_gpu {

cudaError_t& last_error() {
  thread_local cudaError_t error = cudaSuccess;
  return error;
}

void require_callable(const std::string& function) {
  if (inside_callback()) {
    report_violation(function + " called from a stream callback");
    throw CudaFailure{cudaErrorNotPermitted};
  }
  require(settings().driver, cudaErrorInsufficientDriver);
  require(device_count() > 0, cudaErrorNoDevice);
}

}  // namespace simulated_gpu
