// Device, version and error functions of the CUDA runtime.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cuda_runtime_api.h>
#include <string>

#include "support/simulated_gpu/call.hpp"
#include "support/simulated_gpu/device.hpp"
#include "support/simulated_gpu/faults.hpp"
#include "support/simulated_gpu/settings.hpp"

namespace simulated_gpu {
namespace {

constexpr int multiprocessors = 4;
constexpr int compute_capability_major = 8;

Device& require_device(int ordinal) {
  Device* const device = find_device(ordinal);
  require(device != nullptr, cudaErrorInvalidDevice);
  return *device;
}

cudaDeviceProp properties_of(const Device& device) {
  cudaDeviceProp result{};
  std::snprintf(result.name, sizeof result.name, "Simulated GPU");
  result.totalGlobalMem = settings().memory;
  result.warpSize = 32;
  result.maxThreadsPerBlock = 1024;
  result.major = compute_capability_major;
  result.multiProcessorCount = multiprocessors;
  result.pciBusID = device.ordinal() + 1;
  result.unifiedAddressing = 1;
  return result;
}

int attribute_of(const Device& device, cudaDeviceAttr attribute) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      return multiprocessors;
    case cudaDevAttrComputeCapabilityMajor:
      return compute_capability_major;
    case cudaDevAttrComputeCapabilityMinor:
      return 0;
    case cudaDevAttrMaxThreadsPerBlock:
      return 1024;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrPciDomainId:
      return 0;
    case cudaDevAttrPciBusId:
      return device.ordinal() + 1;
    case cudaDevAttrPciDeviceId:
      return 0;
    case cudaDevAttrUnifiedAddressing:
      return 1;
    case cudaDevAttrAsyncEngineCount:
      return 2;
    default:
      throw CudaFailure{cudaErrorInvalidValue};
  }
}

struct ErrorText {
  cudaError_t code;
  const char* name;
  const char* text;
};

constexpr std::array error_texts{
    ErrorText{cudaSuccess, "cudaSuccess", "no error"},
    ErrorText{cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    ErrorText{cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    ErrorText{cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
              "invalid configuration argument"},
    ErrorText{cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
              "CUDA driver version is insufficient for CUDA runtime version"},
    ErrorText{cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction",
              "invalid device function"},
    ErrorText{cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    ErrorText{cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    ErrorText{cudaErrorDeviceUninitialized, "cudaErrorDeviceUninitialized",
              "invalid device context"},
    ErrorText{cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle",
              "invalid resource handle"},
    ErrorText{cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    ErrorText{cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
              "an illegal memory access was encountered"},
    ErrorText{cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
};

ErrorText text_of(cudaError_t code) {
  const auto* const found =
      std::find_if(error_texts.begin(), error_texts.end(),
                   [code](const ErrorText& candidate) { return candidate.code == code; });
  if (found != error_texts.end()) return *found;
  return {code, "unrecognized error code", "unrecognized error code"};
}

/// The error that ended a GPU's work takes precedence over that of a single call.
cudaError_t current_error() {
  const bool usable = settings().driver && device_count() > 0;
  const cudaError_t of_device = usable ? current_device().error() : cudaSuccess;
  return of_device != cudaSuccess ? of_device : last_error();
}

}  // namespace
}  // namespace simulated_gpu

using namespace simulated_gpu;

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return runtime_call("cudaGetDeviceCount", [&] { *count = device_count(); });
}

cudaError_t cudaGetDevice(int* ordinal) {
  return runtime_call("cudaGetDevice", [&] { *ordinal = current_device().ordinal(); });
}

cudaError_t cudaSetDevice(int ordinal) {
  return runtime_call("cudaSetDevice", [&] {
    Device& device = require_device(ordinal);
    device.create_context();
    ContextStack::of_this_thread().replace_top(&device);
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal) {
  return runtime_call("cudaGetDeviceProperties",
                      [&] { *properties = properties_of(require_device(ordinal)); });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int ordinal) {
  return runtime_call("cudaDeviceGetAttribute",
                      [&] { *value = attribute_of(require_device(ordinal), attribute); });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int ordinal) {
  return runtime_call("cudaDeviceGetPCIBusId", [&] {
    const std::string bus_id = require_device(ordinal).bus_id();
    require(length > static_cast<int>(bus_id.size()), cudaErrorInvalidValue);
    std::copy_n(bus_id.c_str(), bus_id.size() + 1, text);
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = settings().driver ? CUDART_VERSION : 0;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = current_error();
  last_error() = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  return current_error();
}

const char* cudaGetErrorName(cudaError_t code) {
  return text_of(code).name;
}

const char* cudaGetErrorString(cudaError_t code) {
  return text_of(code).text;
}
