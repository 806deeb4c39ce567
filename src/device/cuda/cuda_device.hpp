// A GPU as a device.
#pragma once

#include <cstddef>
#include <cuda_runtime_api.h>
#include <memory>
#include <optional>
#include <string>

#include "device/cuda/session.hpp"
#include "device/device.hpp"

namespace safeshuffle::device {

/// Memory by cudaMalloc, packing by one kernel, staging through pinned memory. Thread-safe.
class CudaDevice final : public Device {
 public:
  /// `after`: a stream of the caller; work on a queue runs after the work that was enqueued on this
  /// stream when the queue was made. Throws ConfigError, also while the stream is captured into a
  /// graph; TransportError.
  explicit CudaDevice(int ordinal, std::optional<cudaStream_t> after = {});

  DeviceKind kind() const noexcept override { return DeviceKind::cuda; }
  CudaDevice* as_cuda() noexcept override { return this; }
  int ordinal() const noexcept override { return session_->gpu().ordinal(); }

  /// "NVIDIA H200 at 0000:1B:00.0".
  std::string description() const override;

  /// The CPUs of its NUMA node, which the kernel reports for its PCI address.
  core::CpuSet near_cpus(const core::CpuSet& cpus) const override;
  std::shared_ptr<std::byte> allocate(std::uint64_t bytes) override;
  bool holds(const std::byte* memory) const override;
  std::unique_ptr<Queue> make_queue() override;
  std::unique_ptr<Packer> make_packer(Queue& queue) override;
  std::uint64_t packer_bytes() const noexcept override;
  std::unique_ptr<Staging> make_staging(std::size_t slot_bytes, std::size_t slots) override;
  void copy_to_host(std::byte* destination, const std::byte* source, std::uint64_t bytes) override;

  const SharedSession& session() const noexcept { return session_; }

 private:
  SharedSession session_;
  std::optional<cudaStream_t> after_;
  Stream copies_;
};

}  // namespace safeshuffle::device
