// Opening a GPU, also where the library was built without CUDA.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/device.hpp"

namespace safeshuffle::device {

/// The device of the rank at position `local_rank` of its node; see safeshuffle::Device::ordinal.
/// Throws ConfigError if there is no such GPU or no support for GPUs, TransportError if CUDA fails.
std::shared_ptr<Device> open_gpu(int ordinal, std::uint32_t local_rank);

}  // namespace safeshuffle::device
