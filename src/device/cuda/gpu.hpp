// One GPU of this process, and the guard under which every call to it is made.
#pragma once

#include <cuda.h>
#include <memory>
#include <string>

namespace safeshuffle::device {

/// A GPU's primary context, which the CUDA runtime and every other library in the process share. It
/// is retained on first use and never released, as the runtime does: others may have handles into
/// it. Immutable, thread-safe.
class Gpu {
 public:
  /// Creates a context on this GPU only. Throws TransportError.
  static std::shared_ptr<const Gpu> open(int ordinal);

  int ordinal() const noexcept { return ordinal_; }
  CUcontext context() const noexcept { return context_; }

  /// Such as "NVIDIA H200".
  const std::string& name() const noexcept { return name_; }

  /// See `bus_id_of`.
  const std::string& bus_id() const noexcept { return bus_id_; }

  explicit Gpu(int ordinal);

 private:
  int ordinal_;
  CUcontext context_ = nullptr;
  std::string name_;
  std::string bus_id_;
};

/// Makes a GPU current on this thread, and afterwards restores what was current before, even if
/// that was nothing. cudaSetDevice cannot do that: restoring the device that a thread has by
/// default would create a context on GPU 0, whose memory only one rank needs.
class GpuScope {
 public:
  /// Throws TransportError.
  explicit GpuScope(const Gpu& gpu);
  ~GpuScope();
  GpuScope(const GpuScope&) = delete;
  GpuScope& operator=(const GpuScope&) = delete;
};

/// PCI address, such as "0000:1B:00.0". Creates no context. Throws ConfigError if there is no such
/// GPU, TransportError.
std::string bus_id_of(int ordinal);

/// The number of GPUs visible to this process. Creates no context. Throws TransportError if the
/// driver is missing or too old.
int count_gpus();

}  // namespace safeshuffle::device
