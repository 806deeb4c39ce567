// CUDA return codes as exceptions.
#pragma once

#include <cuda_runtime_api.h>
#include <string>

#include "safeshuffle/error.hpp"

#include "core/source_line.hpp"

namespace safeshuffle::device {

/// The record of a failed call: CUDA's name and message for the error, and the source line.
ErrorRecord cuda_error(cudaError_t code, const std::string& operation, core::SourceLine where);

/// Throws TransportError unless `code` is cudaSuccess. `operation` names the call. Errors that are
/// not sticky are cleared, so that a later cudaGetLastError of the caller does not return them.
inline void check_cuda(cudaError_t code, const char* operation,
                       core::SourceLine where = core::SourceLine::here()) {
  if (code == cudaSuccess) return;
  cudaGetLastError();
  throw TransportError(cuda_error(code, operation, where));
}

/// Interprets the result of a query: whether the work is done. Throws as `check_cuda`.
inline bool is_done(cudaError_t code, const char* operation,
                    core::SourceLine where = core::SourceLine::here()) {
  if (code == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check_cuda(code, operation, where);
  return true;
}

}  // namespace safeshuffle::device
