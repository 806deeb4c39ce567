// Kernels: what nvcc's host code registers and launches.
#include <atomic>
#include <cuda_runtime.h>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "support/simulated_gpu/call.hpp"
#include "support/simulated_gpu/device.hpp"
#include "support/simulated_gpu/inspect.hpp"
#include "support/simulated_gpu/kernels.hpp"
#include "support/simulated_gpu/stream.hpp"
#include "support/simulated_gpu/violations.hpp"

namespace simulated_gpu {
namespace {

struct Implementation {
  std::string name_part;
  std::vector<std::size_t> parameter_sizes;
  KernelFunction function;
};

/// All kernels of the program. Thread-safe.
class KernelTable {
 public:
  void add(const void* kernel, std::string name) {
    const std::scoped_lock lock(mutex_);
    names_[kernel] = std::move(name);
  }

  void implement(Implementation implementation) {
    const std::scoped_lock lock(mutex_);
    implementations_.push_back(std::make_shared<Implementation>(std::move(implementation)));
  }

  /// Throws CudaFailure if the program has no such kernel.
  std::string name(const void* kernel) {
    const std::scoped_lock lock(mutex_);
    const auto found = names_.find(kernel);
    require(found != names_.end(), cudaErrorInvalidDeviceFunction);
    return found->second;
  }

  /// Null if there is none.
  std::shared_ptr<const Implementation> implementation(const std::string& name) {
    const std::scoped_lock lock(mutex_);
    for (const auto& candidate : implementations_) {
      if (name.find(candidate->name_part) != std::string::npos) return candidate;
    }
    return nullptr;
  }

  /// Whether the kernel was not loaded on the GPU before.
  bool load(const void* kernel, const Device& device) {
    const std::scoped_lock lock(mutex_);
    return loaded_.emplace(kernel, device.ordinal()).second;
  }

 private:
  std::mutex mutex_;
  std::map<const void*, std::string> names_;
  std::vector<std::shared_ptr<const Implementation>> implementations_;
  std::set<std::pair<const void*, int>> loaded_;
};

// Never destroyed: streams may still work while the process exits.
KernelTable& kernels() {
  static auto* const table = new KernelTable;
  return *table;
}

std::atomic<std::uint64_t>& launches() {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

/// Kernels are loaded by the first function that uses them. Throws CudaFailure.
void load(const void* kernel, Device& device) {
  const std::string name = kernels().name(kernel);
  if (kernels().load(kernel, device)) device.require_no_nccl("loading kernel " + name);
}

/// Copies of a launch's arguments: the caller's exist only during the call.
class Arguments {
 public:
  Arguments(void** arguments, const std::vector<std::size_t>& sizes) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto* const begin = static_cast<const std::byte*>(arguments[i]);
      values_.emplace_back(begin, begin + sizes[i]);
    }
    for (auto& value : values_) pointers_.push_back(value.data());
  }

  void** pointers() { return pointers_.data(); }

 private:
  std::vector<std::vector<std::byte>> values_;
  std::vector<void*> pointers_;
};

std::uint64_t volume(const dim3& size) {
  return std::uint64_t{size.x} * size.y * size.z;
}

std::shared_ptr<const Implementation> require_implementation(const void* kernel) {
  const std::string name = kernels().name(kernel);
  auto implementation = kernels().implementation(name);
  if (!implementation) {
    report_violation("launch of kernel " + name + ", which the simulation has no function for");
    throw CudaFailure{cudaErrorInvalidDeviceFunction};
  }
  return implementation;
}

void launch(const void* kernel, dim3 grid, dim3 block, void** arguments, Stream& stream) {
  const auto implementation = require_implementation(kernel);
  require(volume(grid) > 0 && volume(block) > 0 && volume(block) <= 1024,
          cudaErrorInvalidConfiguration);
  const auto kept = std::make_shared<Arguments>(arguments, implementation->parameter_sizes);
  stream.enqueue_work([=] { implementation->function(kept->pointers(), grid, block); });
  ++launches();
}

struct LaunchConfiguration {
  dim3 grid;
  dim3 block;
  std::size_t shared_memory;
  cudaStream_t stream;
};

std::vector<LaunchConfiguration>& launch_configurations() {
  thread_local std::vector<LaunchConfiguration> stack;
  return stack;
}

}  // namespace

void register_kernel(std::string device_name_part, std::vector<std::size_t> parameter_sizes,
                     KernelFunction function) {
  kernels().implement(
      {std::move(device_name_part), std::move(parameter_sizes), std::move(function)});
}

std::uint64_t kernel_launches() {
  return launches();
}

}  // namespace simulated_gpu

using namespace simulated_gpu;

cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                             std::size_t, cudaStream_t handle) {
  return device_call("cudaLaunchKernel", [&](Device& device) {
    const auto stream = find_stream(handle);
    require(&stream->device() == &device, cudaErrorInvalidResourceHandle);
    load(kernel, device);
    launch(kernel, grid, block, arguments, *stream);
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* kernel,
                                                                   int block_size, std::size_t,
                                                                   unsigned) {
  return device_call("cudaOccupancyMaxActiveBlocksPerMultiprocessor", [&](Device& device) {
    require(block_size > 0, cudaErrorInvalidValue);
    load(kernel, device);
    *blocks = 2048 / block_size;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel,
                                                          int block_size,
                                                          std::size_t shared_memory) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, block_size,
                                                                shared_memory, 0);
}

// The functions below are called by nvcc's host code only; signatures as in crt/host_runtime.h.
extern "C" {

void** __cudaRegisterFatBinary(void* binary) {
  return static_cast<void**>(binary);
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void**) {}

char __cudaInitModule(void**) {
  return 1;
}

void __cudaRegisterFunction(void**, const char* kernel, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  kernels().add(kernel, name);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_memory,
                                     CUstream_st* stream) {
  launch_configurations().push_back({grid, block, shared_memory, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_memory,
                                       void* stream) {
  if (launch_configurations().empty()) return cudaErrorMissingConfiguration;
  const LaunchConfiguration configuration = launch_configurations().back();
  launch_configurations().pop_back();
  *grid = configuration.grid;
  *block = configuration.block;
  *shared_memory = configuration.shared_memory;
  *static_cast<cudaStream_t*>(stream) = configuration.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* kernel) {
  *handle = static_cast<cudaKernel_t>(const_cast<void*>(kernel));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared_memory, cudaStream_t stream) {
  return cudaLaunchKernel(static_cast<const void*>(kernel), grid, block, arguments, shared_memory,
                          stream);
}
}
