#include "device/cuda/cuda_device.hpp"

#include "device/cuda/call.hpp"
#include "device/cuda/cuda_packer.hpp"
#include "device/cuda/cuda_queue.hpp"
#include "device/cuda/cuda_staging.hpp"

namespace safeshuffle::device {
CudaDevice::CudaDevice(int ordinal, std::optional<cudaStream_t> after)
    : session_(std::make_shared<const CudaSession>(Gpu::open(ordinal))), after_(after) {
  if (after_) require_not_capturing(session_->gpu(), *after_);
  copies_ = make_stream(session_);
}

std::string CudaDevice::description() const {
  return session_->gpu().name() + " at " + session_->gpu().bus_id();
}

core::CpuSet CudaDevice::near_cpus(const core::CpuSet& cpus) const {
  return core::cpus_near(session_->gpu().bus_id(), cpus);
}

std::shared_ptr<std::byte> CudaDevice::allocate(std::uint64_t bytes) {
  return allocate_on_gpu(session_, bytes);
}

bool CudaDevice::holds(const std::byte* memory) const {
  const GpuScope scope(session_->gpu());
  cudaPointerAttributes found{};
  check_cuda(cudaPointerGetAttributes(&found, memory), "cudaPointerGetAttributes");
  return found.type == cudaMemoryTypeManaged ||
         (found.type == cudaMemoryTypeDevice && found.device == ordinal());
}

std::unique_ptr<Queue> CudaDevice::make_queue() {
  return std::make_unique<CudaQueue>(session_, after_);
}

std::unique_ptr<Packer> CudaDevice::make_packer(Queue& queue) {
  return std::make_unique<CudaPacker>(session_, static_cast<cudaStream_t>(queue.native_handle()));
}

std::uint64_t CudaDevice::packer_bytes() const noexcept {
  return CudaPacker::bytes;
}

std::unique_ptr<Staging> CudaDevice::make_staging(std::size_t slot_bytes, std::size_t slots) {
  return std::make_unique<CudaStaging>(session_, slot_bytes, slots);
}

void CudaDevice::copy_to_host(std::byte* destination, const std::byte* source,
                              std::uint64_t bytes) {
  const GpuScope scope(session_->gpu());
  check_cuda(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToHost, copies_.get()),
             "cudaMemcpyAsync");
  check_cuda(cudaStreamSynchronize(copies_.get()), "cudaStreamSynchronize");
}

}  // namespace safeshuffle::device
