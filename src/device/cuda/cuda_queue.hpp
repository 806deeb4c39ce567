// A stream as a queue.
#pragma once

#include <cuda_runtime_api.h>
#include <memory>

#include "device/cuda/session.hpp"
#include "device/device.hpp"

namespace safeshuffle::device {

class CudaQueue final : public Queue {
 public:
  /// Throws TransportError.
  explicit CudaQueue(SharedSession session);

  bool idle() override;
  std::unique_ptr<QueueMark> mark() override;
  void* native_handle() const noexcept override { return stream_.get(); }
  void abandon() noexcept override { session_->abandon(); }

  /// Work enqueued from now on runs after the work now on `stream`. Throws TransportError.
  void follow(cudaStream_t stream);

 private:
  SharedSession session_;
  Stream stream_;
  Event order_;
};

}  // namespace safeshuffle::device
