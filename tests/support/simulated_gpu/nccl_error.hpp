// The message of the last NCCL failure of this process.
#pragma once

#include <string>

#include "support/simulated_gpu/nccl_failure.hpp"

namespace simulated_gpu {

/// Keeps the text for ncclGetLastError; returns the code. Thread-safe.
ncclResult_t remember(const NcclFailure& failure);

std::string last_nccl_error();

}  // namespace simulated_gpu
