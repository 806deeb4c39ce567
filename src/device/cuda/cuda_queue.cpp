#include "device/cuda/cuda_queue.hpp"

#include <utility>

#include "device/cuda/call.hpp"

namespace safeshuffle::device {

CudaQueue::CudaQueue(SharedSession session)
    : session_(std::move(session)), stream_(make_stream(session_)), order_(make_event(session_)) {}

void CudaQueue::follow(cudaStream_t stream) {
  const GpuScope scope(session_->gpu());
  record(order_, stream);
  check_cuda(cudaStreamWaitEvent(stream_.get(), order_.get(), 0), "cudaStreamWaitEvent");
}

bool CudaQueue::idle() {
  const GpuScope scope(session_->gpu());
  return is_done(cudaStreamQuery(stream_.get()), "cudaStreamQuery");
}

}  // namespace safeshuffle::device
