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

// Before anything is created: an allocation would invalidate the capture.
SharedSession checked(SharedSession session, std::optional<cudaStream_t> caller) {
  if (caller) require_not_capturing(session->gpu(), *caller);
  return session;
}

}  // namespace

CudaQueue::CudaQueue(SharedSession session, std::optional<cudaStream_t> caller)
    : session_(checked(std::move(session), caller)),
      caller_(caller),
      stream_(make_stream(session_)),
      order_(make_event(session_)) {
  follow_caller();
}

void CudaQueue::follow_caller() {
  if (!caller_) return;
  require_not_capturing(session_->gpu(), *caller_);
  const GpuScope scope(session_->gpu());
  record(order_, *caller_);
  check_cuda(cudaStreamWaitEvent(stream_.get(), order_.get(), 0), "cudaStreamWaitEvent");
}

std::unique_ptr<QueueMark> CudaQueue::mark() {
  return std::make_unique<CudaMark>(session_, stream_.get());
}

bool CudaQueue::idle() {
  const GpuScope scope(session_->gpu());
  return is_done(cudaStreamQuery(stream_.get()), "cudaStreamQuery");
}

void require_not_capturing(const Gpu& gpu, cudaStream_t stream) {
  const GpuScope scope(gpu);
  auto status = cudaStreamCaptureStatusNone;
  const cudaError_t code = cudaStreamIsCapturing(stream, &status);
  // For the legacy stream: another stream, which its work would have to wait for, is being
  // captured.
  const bool implicitly = code == cudaErrorStreamCaptureImplicit;
  if (implicitly) {
    cudaGetLastError();
  } else {
    check_cuda(code, "cudaStreamIsCapturing");
  }
  if (implicitly || status != cudaStreamCaptureStatusNone) {
    throw ConfigError("the stream is being captured into a graph; a load cannot be part of one");
  }
}

}  // namespace safeshuffle::device
