// A stream as a queue.
#pragma once

#include <cuda_runtime_api.h>
#include <memory>
#include <optional>

#include "device/cuda/session.hpp"
#include "device/device.hpp"

namespace safeshuffle::device {

class CudaQueue final : public Queue {
 public:
  /// `caller`: what it follows.
  CudaQueue(SharedSession session, std::optional<cudaStream_t> caller);

  void follow_caller() override;
  bool idle() override;
  std::unique_ptr<QueueMark> mark() override;
  void* native_handle() const noexcept override { return stream_.get(); }
  void abandon() noexcept override { session_->abandon(); }

 private:
  SharedSession session_;
  std::optional<cudaStream_t> caller_;
  Stream stream_;
  Event order_;
};

/// Throws ConfigError if work on a stream, or what the legacy stream would wait for, is captured.
void require_not_capturing(const Gpu& gpu, cudaStream_t stream);

}  // namespace safeshuffle::device
