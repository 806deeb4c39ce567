// Reading files into GPU memory with GPUDirect Storage.
#pragma once

#include <memory>
#include <span>

#include "device/cuda/session.hpp"
#include "device/device.hpp"

namespace safeshuffle::device {

/// Loads cuFile and opens its driver, which both stay until the process ends. `memory`: where most
/// is read to, so that cuFile reads into it without buffers of its own; see
/// Staging::make_device_reads. Throws IoError with the reason if there is no cuFile that works.
std::unique_ptr<DeviceReads> make_cufile_reads(SharedSession session,
                                               std::span<const std::span<std::byte>> memory);

}  // namespace safeshuffle::device
