#include "device/cuda/open.hpp"

#include "safeshuffle/error.hpp"

#include "device/cuda/cuda_device.hpp"

namespace safeshuffle::device {
namespace {

constexpr const char* none_visible = "no GPU is visible";

// More ranks than GPUs share them in turns.
int resolve(int ordinal, std::uint32_t local_rank) {
  if (ordinal != safeshuffle::Device::by_local_rank) return ordinal;
  const int count = count_gpus();
  if (count == 0) throw TransportError(none_visible);
  return static_cast<int>(local_rank % static_cast<unsigned>(count));
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
    return count_gpus() > 0 ? "" : none_visible;
  } catch (const Error& error) {
    return error.record().cause;
  }
}

}  // namespace safeshuffle::device
