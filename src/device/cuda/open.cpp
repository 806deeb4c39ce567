#include "device/cuda/open.hpp"

#include "safeshuffle/error.hpp"

#include "device/cuda/cuda_device.hpp"

namespace safeshuffle::device {
namespace {

// More ranks than GPUs share them in turns.
int resolve(int ordinal, std::uint32_t local_rank) {
  if (ordinal != safeshuffle::Device::by_local_rank) return ordinal;
  const int count = count_gpus();
  return count == 0 ? 0 : static_cast<int>(local_rank % static_cast<unsigned>(count));
}

}  // namespace

std::shared_ptr<Device> open_gpu(int ordinal, std::uint32_t local_rank) {
  return std::make_shared<CudaDevice>(resolve(ordinal, local_rank));
}

std::string gpu_address(int ordinal, std::uint32_t local_rank) {
  return bus_id_of(resolve(ordinal, local_rank));
}

std::string gpu_obstacle() {
  try {
    return count_gpus() > 0 ? "" : "no GPU is visible";
  } catch (const Error& error) {
    // What the runtime says of a missing driver as well, in many more words.
    const bool no_driver = error.record().code == cudaErrorInsufficientDriver;
    return no_driver ? "no CUDA driver, or one that is too old" : error.record().cause;
  }
}

}  // namespace safeshuffle::device
