// The GPUs of this process, and the one that a thread uses.
#pragma once

#include <atomic>
#include <cstdint>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace simulated_gpu {

class Stream;

/// One GPU. Lives as long as the process. Thread-safe.
class Device {
 public:
  explicit Device(int ordinal) : ordinal_(ordinal) {}

  int ordinal() const noexcept { return ordinal_; }

  /// Such as "0000:01:00.0".
  std::string bus_id() const;

  /// The primary context: made by the runtime for good, or retained through the driver.
  void create_context() noexcept { used_by_runtime_ = true; }
  bool has_context() const noexcept { return used_by_runtime_ || retained_ > 0; }
  void retain() noexcept { ++retained_; }

  /// False if it was not retained.
  bool release() noexcept;

  /// The error that ended all work on it, or cudaSuccess. The first one stays.
  cudaError_t error() const noexcept { return error_; }
  void fail(cudaError_t error) noexcept;

  /// Takes `bytes` more if they fit; returns whether they do.
  bool take(std::uint64_t bytes);
  void give_back(std::uint64_t bytes) noexcept { used_bytes_ -= bytes; }
  std::uint64_t used_bytes() const noexcept { return used_bytes_; }

  /// NCCL operations that are enqueued or run.
  std::atomic<int>& nccl_operations() noexcept { return nccl_operations_; }

  /// Reports a violation if such operations are in flight; false then.
  bool require_no_nccl(const std::string& what);

  std::shared_ptr<Stream> default_stream();
  void add_stream(const std::shared_ptr<Stream>& stream);

  /// Waits for all streams.
  void synchronize();

 private:
  const int ordinal_;
  std::atomic<bool> used_by_runtime_{false};
  std::atomic<int> retained_{0};
  std::atomic<cudaError_t> error_{cudaSuccess};
  std::atomic<std::uint64_t> used_bytes_{0};
  std::atomic<int> nccl_operations_{0};
  std::mutex mutex_;
  std::shared_ptr<Stream> default_stream_;
  std::vector<std::weak_ptr<Stream>> streams_;
};

int device_count();

/// Null if there is no such GPU.
Device* find_device(int ordinal);

/// The driver's stack of contexts for each thread; its top is the runtime's current GPU.
class ContextStack {
 public:
  static ContextStack& of_this_thread();

  /// Null if there is none.
  Device* top() const { return devices_.empty() ? nullptr : devices_.back(); }
  void push(Device* device) { devices_.push_back(device); }

  /// Null if there was none.
  Device* pop();

  /// Null removes the top.
  void replace_top(Device* device);

 private:
  std::vector<Device*> devices_;
};

/// The GPU that runtime calls of this thread go to: GPU 0 if the thread never chose.
Device& current_device();

}  // namespace simulated_gpu
