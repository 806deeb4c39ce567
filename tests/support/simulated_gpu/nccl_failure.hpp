// Why an NCCL call fails.
#pragma once

#include <nccl.h>
#include <string>

namespace simulated_gpu {

struct NcclFailure {
  ncclResult_t code;
  std::string text;
};

/// Throws NcclFailure unless the condition holds.
inline void require(bool condition, ncclResult_t otherwise, const char* text) {
  if (!condition) throw NcclFailure{otherwise, text};
}

}  // namespace simulated_gpu
