#include "device/host/host_device.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/process.hpp"
#include "device/host/memory.hpp"
#include "device/host/pack.hpp"

namespace safeshuffle::device {
namespace {

class HostQueue final : public Queue {
 public:
  bool idle() override { return true; }
};

class HostPacker final : public Packer {
 public:
  explicit HostPacker(std::shared_ptr<core::ThreadPool> pool) : pool_(std::move(pool)) {}

  void pack(std::span<const PackItem> items, const PackBuffers& buffers) override {
    pack_on_host(items, buffers, *pool_);
  }

  void zero(std::byte* destination, std::uint64_t rows, std::uint64_t row_bytes,
            std::uint64_t stride) override {
    for (std::uint64_t row = 0; row < rows; ++row) {
      std::memset(destination + row * stride, 0, row_bytes);
    }
  }

 private:
  std::shared_ptr<core::ThreadPool> pool_;
};

class HostStaging final : public Staging {
 public:
  std::optional<StagingSlot> try_acquire(std::byte* device_destination, std::size_t bytes,
                                         std::size_t /*skip*/) override {
    return StagingSlot{{device_destination, bytes}, device_destination, 0};
  }

  void commit(StagingSlot, std::function<void()> landed) override { landed(); }
  void discard(StagingSlot) noexcept override {}
  std::uint64_t pinned_bytes() const noexcept override { return 0; }
};

}  // namespace

HostDevice::HostDevice(std::size_t threads, std::string remark)
    : pool_(std::make_shared<core::ThreadPool>(threads - 1)), remark_(std::move(remark)) {}

std::string HostDevice::description() const {
  return remark_.empty() ? "host" : "host (" + remark_ + ")";
}

std::shared_ptr<std::byte> HostDevice::allocate(std::uint64_t bytes) {
  return allocate_pages(bytes);
}

void HostDevice::expect_writes(std::byte* memory, std::uint64_t bytes) {
  advise_huge_pages({memory, bytes});
}

std::unique_ptr<Queue> HostDevice::make_queue() {
  return std::make_unique<HostQueue>();
}

std::unique_ptr<Packer> HostDevice::make_packer(Queue& /*queue*/) {
  return std::make_unique<HostPacker>(pool_);
}

std::unique_ptr<Staging> HostDevice::make_staging(std::size_t, std::size_t) {
  return std::make_unique<HostStaging>();
}

void HostDevice::copy_to_host(std::byte* destination, const std::byte* source,
                              std::uint64_t bytes) {
  std::copy_n(source, bytes, destination);
}

std::size_t HostDevice::default_threads() {
  return std::min<std::size_t>(core::available_cores(), 4);
}

}  // namespace safeshuffle::device
