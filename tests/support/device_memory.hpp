// Device memory in tests: filled by staging, read back by copying.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "core/backoff.hpp"
#include "core/deadline.hpp"
#include "device/device.hpp"
#include "support/catch.hpp"

namespace safeshuffle::testing {

using Bytes = std::vector<std::byte>;

/// Waits for `done`, with a time limit. Any thread may, so nothing here is an assertion of Catch.
inline void wait_until(const std::function<bool()>& done) {
  const core::Deadline deadline(std::chrono::minutes(5));
  core::Backoff backoff;
  while (!done()) {
    if (deadline.expired()) throw std::runtime_error("waited for 5 minutes");
    backoff.pause();
  }
}

/// A slot, as soon as one is free.
inline device::StagingSlot wait_for_slot(device::Staging& staging, std::byte* destination,
                                         std::size_t bytes) {
  std::optional<device::StagingSlot> slot;
  wait_until([&] { return (slot = staging.try_acquire(destination, bytes, 0)).has_value(); });
  return *slot;
}

/// Fills device memory through staging, in a limited number of unaligned pieces.
inline void upload(device::Device& device, std::byte* destination, const Bytes& data) {
  const std::size_t slot_bytes = std::max<std::size_t>(4096 + 17, data.size() / 64 | 1);
  const auto staging = device.make_staging(slot_bytes, 2);
  std::atomic<std::size_t> landed{0};
  std::size_t pieces = 0;
  for (std::size_t offset = 0; offset < data.size(); offset += slot_bytes, ++pieces) {
    const std::size_t bytes = std::min(slot_bytes, data.size() - offset);
    const auto slot = wait_for_slot(*staging, destination + offset, bytes);
    REQUIRE(slot.host.size() == bytes);
    std::copy_n(data.data() + offset, bytes, slot.host.data());
    staging->commit(slot, [&landed] { ++landed; });
  }
  wait_until([&] { return landed == pieces; });
}

/// `data` in new memory; null if it is empty.
inline std::shared_ptr<std::byte> upload(device::Device& device, const Bytes& data) {
  if (data.empty()) return nullptr;
  std::shared_ptr<std::byte> memory = device.allocate(data.size());
  upload(device, memory.get(), data);
  return memory;
}

inline Bytes download(device::Device& device, const std::byte* source, std::size_t bytes) {
  Bytes data(bytes);
  if (bytes != 0) device.copy_to_host(data.data(), source, bytes);
  return data;
}

/// Memory of a device with a chosen address modulo 4096.
class DeviceMemory {
 public:
  DeviceMemory(device::Device& device, std::size_t bytes, std::size_t remainder = 0)
      : device_(device),
        memory_(device.allocate(bytes + remainder)),
        data_(memory_.get() + remainder),
        bytes_(bytes) {}

  std::byte* data() const { return data_; }
  Bytes contents() const { return contents(0, bytes_); }
  Bytes contents(std::size_t offset, std::size_t bytes) const {
    return download(device_, data_ + offset, bytes);
  }

 private:
  device::Device& device_;
  const std::shared_ptr<std::byte> memory_;
  std::byte* const data_;
  const std::size_t bytes_;
};

}  // namespace safeshuffle::testing
