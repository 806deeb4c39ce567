// The CPU and its memory as a device.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "core/thread_pool.hpp"
#include "device/device.hpp"

namespace safeshuffle::device {

/// Packs on a small pool of threads, before `Packer::pack` returns. Staging hands out the
/// destination itself, so that nothing is copied and nothing waits. Thread-safe.
class HostDevice final : public Device {
 public:
  /// `threads` pack at once, including the calling one; at least 1. `remark` states in reports why
  /// this device was chosen.
  explicit HostDevice(std::size_t threads = default_threads(), std::string remark = {});

  DeviceKind kind() const noexcept override { return DeviceKind::host; }
  std::string description() const override;
  std::shared_ptr<std::byte> allocate(std::uint64_t bytes) override;
  void expect_writes(std::byte* memory, std::uint64_t bytes) override;
  std::unique_ptr<Queue> make_queue() override;
  std::unique_ptr<Packer> make_packer(Queue& queue) override;
  bool reads_to_pack() const noexcept override { return true; }
  std::unique_ptr<Staging> make_staging(std::size_t slot_bytes, std::size_t slots) override;
  void copy_to_host(std::byte* destination, const std::byte* source, std::uint64_t bytes) override;

  /// The cores this process may run on, at most 4: few threads saturate memory, and several ranks
  /// share a machine.
  static std::size_t default_threads();

 private:
  std::shared_ptr<core::ThreadPool> pool_;
  std::string remark_;
};

}  // namespace safeshuffle::device
