#pragma once

#include <memory>

#include "device/device.hpp"

inline std::shared_ptr<safeshuffle::device::Device> open_gpu() {
  return safeshuffle::device::open_device(safeshuffle::Device::cuda());
}
