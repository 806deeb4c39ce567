// Kernels, for which the test provides functions that run on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <functional>
#include <string>
#include <vector>

namespace simulated_gpu {

/// Runs a whole launch. `arguments` points to copies of the kernel's arguments; `host_view` gives
/// the memory behind pointers among them. Called by the thread of a stream.
using KernelFunction = std::function<void(void** arguments, dim3 grid, dim3 block)>;

/// Every kernel whose mangled name contains `device_name_part` runs as `function`. Its parameters
/// have these sizes, in order. Call before the first launch, for example while statics are
/// initialised.
void register_kernel(std::string device_name_part, std::vector<std::size_t> parameter_sizes,
                     KernelFunction function);

}  // namespace simulated_gpu
