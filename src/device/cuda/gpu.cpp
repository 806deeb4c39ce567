#include "device/cuda/gpu.hpp"

#include <array>
#include <cuda_runtime_api.h>

#include "device/cuda/call.hpp"

namespace safeshuffle::device {
namespace {

/// The oldest driver interface that is used.
constexpr unsigned driver_version = 12000;

/// A function of the driver, looked up at run time, so that programs also start without a driver.
template <class Function>
Function driver_function(const char* name) {
  void* function = nullptr;
  auto status = cudaDriverEntryPointSymbolNotFound;
  check_cuda(
      cudaGetDriverEntryPointByVersion(name, &function, driver_version, cudaEnableDefault, &status),
      "cudaGetDriverEntryPointByVersion");
  if (status != cudaDriverEntryPointSuccess) {
    throw TransportError(std::string("the CUDA driver has no ") + name);
  }
  return reinterpret_cast<Function>(function);
}

/// Typed by the header, so that a changed signature does not compile.
struct Driver {
  decltype(&cuInit) init = driver_function<decltype(&cuInit)>("cuInit");
  decltype(&cuDeviceGet) device_get = driver_function<decltype(&cuDeviceGet)>("cuDeviceGet");
  decltype(&cuDevicePrimaryCtxRetain) retain =
      driver_function<decltype(&cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain");
  decltype(&cuCtxPushCurrent) push =
      driver_function<decltype(&cuCtxPushCurrent)>("cuCtxPushCurrent");
  decltype(&cuCtxPopCurrent) pop = driver_function<decltype(&cuCtxPopCurrent)>("cuCtxPopCurrent");
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

// The runtime's codes have the driver's numbers.
void check_driver(CUresult code, const char* operation,
                  core::SourceLine where = core::SourceLine::here()) {
  check_cuda(static_cast<cudaError_t>(code), operation, where);
}

CUcontext retain_primary_context(int ordinal) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  check_driver(driver().init(0), "cuInit");
  check_driver(driver().device_get(&device, ordinal), "cuDeviceGet");
  check_driver(driver().retain(&context, device), "cuDevicePrimaryCtxRetain");
  return context;
}

void require_gpu(int ordinal) {
  const int count = count_gpus();
  if (ordinal >= 0 && ordinal < count) return;
  throw ConfigError("GPU " + std::to_string(ordinal) +
                    " does not exist: the number of GPUs visible to this process is " +
                    std::to_string(count));
}

// Shorter than the runtime's own message.
[[noreturn]] void fail_without_driver() {
  cudaGetLastError();
  throw TransportError(ErrorRecord{.code = cudaErrorInsufficientDriver,
                                   .cause = "the CUDA driver is missing or too old"});
}

std::string name_of(int ordinal) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  return static_cast<const char*>(properties.name);
}

}  // namespace

Gpu::Gpu(int ordinal) : ordinal_(ordinal), name_(name_of(ordinal)), bus_id_(bus_id_of(ordinal)) {
  context_ = retain_primary_context(ordinal);
}

std::shared_ptr<const Gpu> Gpu::open(int ordinal) {
  require_gpu(ordinal);
  return std::make_shared<const Gpu>(ordinal);
}

GpuScope::GpuScope(const Gpu& gpu) {
  check_driver(driver().push(gpu.context()), "cuCtxPushCurrent");
}

GpuScope::~GpuScope() {
  CUcontext own = nullptr;
  driver().pop(&own);
}

std::string bus_id_of(int ordinal) {
  require_gpu(ordinal);
  std::array<char, 32> text{};
  check_cuda(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), ordinal),
             "cudaDeviceGetPCIBusId");
  return text.data();
}

int count_gpus() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaErrorNoDevice) {
    cudaGetLastError();
    return 0;
  }
  if (code == cudaErrorInsufficientDriver) fail_without_driver();
  check_cuda(code, "cudaGetDeviceCount");
  return count;
}

}  // namespace safeshuffle::device
