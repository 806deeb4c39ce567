// Replaces open.cpp in a build without CUDA.
#include "safeshuffle/error.hpp"

#include "device/cuda/open.hpp"

namespace safeshuffle::device {

std::shared_ptr<Device> open_gpu(int, std::uint32_t) {
  throw ConfigError("no GPU can be used: " + gpu_obstacle());
}

std::string gpu_obstacle() {
  return "this safeshuffle was built without CUDA";
}

std::string gpu_address(int, std::uint32_t) {
  throw ConfigError("no GPU can be used: " + gpu_obstacle());
}

}  // namespace safeshuffle::device
