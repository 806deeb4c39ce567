#include "device/cuda/cuda_queue.hpp"

#include <utility>

#include "device/cuda/call.hpp"

namespace safeshuffle::device {
namespace {

class CudaMark final : public QueueMark {
 public:
  CudaMark(SharedSession session, cudaStream_t stream)
      : session_(std::move(session)), event_(make_timing_event(session_)) {
    const GpuScope scope(session_->gpu());
    record(event_, stream);
  }

  double seconds_until(const QueueMark& later) const override {
    const GpuScope scope(session_->gpu());
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, event_.get(),
                                    static_cast<const CudaMark&>(later).event_.get()),
               "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) / 1e3;
  }

 private:
  SharedSession session_;
  Event event_;
};

}  // namespace

CudaQueue::CudaQueue(SharedSession session)
    : session_(std::move(session)), stream_(make_stream(session_)), order_(make_event(session_)) {}

void CudaQueue::follow(cudaStream_t stream) {
  const GpuScope scope(session_->gpu());
  record(order_, stream);
  check_cuda(cudaStreamWaitEvent(stream_.get(), order_.get(), 0), "cudaStreamWaitEvent");
}

std::unique_ptr<QueueMark> CudaQueue::mark() {
  return std::make_unique<CudaMark>(session_, stream_.get());
}

bool CudaQueue::idle() {
  const GpuScope scope(session_->gpu());
  return is_done(cudaStreamQuery(stream_.get()), "cudaStreamQuery");
}

}  // namespace safeshuffle::device
