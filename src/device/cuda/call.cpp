#include "device/cuda/call.hpp"

namespace safeshuffle::device {

ErrorRecord cuda_error(cudaError_t code, const std::string& operation, core::SourceLine where) {
  return {.code = static_cast<std::int32_t>(code),
          .cause = operation + ": " + cudaGetErrorName(code) + ", " + cudaGetErrorString(code) +
                   " (" + core::text_of(where) + ")"};
}

}  // namespace safeshuffle::device
