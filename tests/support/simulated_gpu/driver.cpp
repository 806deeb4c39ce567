// The functions of the CUDA driver that the runtime provides by name.
#include <array>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <string_view>

#include "support/simulated_gpu/call.hpp"
#include "support/simulated_gpu/device.hpp"

namespace simulated_gpu {
namespace {

CUcontext context_of(Device* device) {
  return reinterpret_cast<CUcontext>(device);
}

/// Null if the handle is not a context.
Device* device_of(CUcontext context) {
  for (int ordinal = 0; ordinal < device_count(); ++ordinal) {
    Device* const device = find_device(ordinal);
    if (context_of(device) == context && device->has_context()) return device;
  }
  return nullptr;
}

CUresult init(unsigned) {
  return CUDA_SUCCESS;
}

CUresult device_get(CUdevice* device, int ordinal) {
  if (find_device(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult retain(CUcontext* context, CUdevice ordinal) {
  Device* const device = find_device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  device->retain();
  *context = context_of(device);
  return CUDA_SUCCESS;
}

CUresult release(CUdevice ordinal) {
  Device* const device = find_device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return device->release() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult get_state(CUdevice ordinal, unsigned* flags, int* active) {
  const Device* const device = find_device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = device->has_context() ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult push(CUcontext context) {
  Device* const device = device_of(context);
  if (device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  ContextStack::of_this_thread().push(device);
  return CUDA_SUCCESS;
}

CUresult pop(CUcontext* context) {
  Device* const device = ContextStack::of_this_thread().pop();
  if (device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = context_of(device);
  return CUDA_SUCCESS;
}

CUresult get_current(CUcontext* context) {
  *context = context_of(ContextStack::of_this_thread().top());
  return CUDA_SUCCESS;
}

CUresult set_current(CUcontext context) {
  Device* const device = device_of(context);
  if (context != nullptr && device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  ContextStack::of_this_thread().replace_top(device);
  return CUDA_SUCCESS;
}

CUresult get_device(CUdevice* device) {
  const Device* const current = ContextStack::of_this_thread().top();
  if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current->ordinal();
  return CUDA_SUCCESS;
}

struct EntryPoint {
  std::string_view name;
  void* function;
};

/// The address of a function that has the signature of the driver's.
template <class Signature>
void* address(Signature* function) {
  return reinterpret_cast<void*>(function);
}

void* find_entry_point(std::string_view name) {
  static const std::array entry_points{
      EntryPoint{"cuInit", address<decltype(cuInit)>(init)},
      EntryPoint{"cuDeviceGet", address<decltype(cuDeviceGet)>(device_get)},
      EntryPoint{"cuDevicePrimaryCtxRetain", address<decltype(cuDevicePrimaryCtxRetain)>(retain)},
      EntryPoint{"cuDevicePrimaryCtxRelease",
                 address<decltype(cuDevicePrimaryCtxRelease)>(release)},
      EntryPoint{"cuDevicePrimaryCtxGetState",
                 address<decltype(cuDevicePrimaryCtxGetState)>(get_state)},
      EntryPoint{"cuCtxPushCurrent", address<decltype(cuCtxPushCurrent)>(push)},
      EntryPoint{"cuCtxPopCurrent", address<decltype(cuCtxPopCurrent)>(pop)},
      EntryPoint{"cuCtxGetCurrent", address<decltype(cuCtxGetCurrent)>(get_current)},
      EntryPoint{"cuCtxSetCurrent", address<decltype(cuCtxSetCurrent)>(set_current)},
      EntryPoint{"cuCtxGetDevice", address<decltype(cuCtxGetDevice)>(get_device)},
  };
  for (const EntryPoint& entry : entry_points) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace
}  // namespace simulated_gpu

using namespace simulated_gpu;

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  return runtime_call("cudaGetDriverEntryPointByVersion", [&] {
    *function = find_entry_point(symbol);
    if (status == nullptr) return;
    *status =
        *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  });
}
