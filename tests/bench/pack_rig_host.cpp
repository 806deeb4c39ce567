#include <cstring>

#include "bench/pack_rig.hpp"
#include "core/deadline.hpp"
#include "device/host/host_device.hpp"

namespace safeshuffle::bench {
namespace {

class HostRig final : public PackRig {
 public:
  HostRig(std::size_t threads, std::uint64_t bytes)
      : threads_(threads),
        device_(threads),
        slab_(device_.allocate(bytes + 4096)),
        arena_(device_.allocate(bytes + 4096)),
        queue_(device_.make_queue()),
        packer_(device_.make_packer(*queue_)) {
    std::memset(slab_.get(), 0x3c, bytes + 4096);
  }

  std::string description() const override {
    return std::to_string(threads_) + " threads (memcpy: one)";
  }

  std::string copy_name() const override { return "memcpy"; }

  int repetitions() const override { return 11; }

  double pack(std::span<const PackItem> items) override {
    const auto start = core::Clock::now();
    packer_->pack(items, {slab_.get(), arena_.get(), nullptr});
    return core::seconds_since(start);
  }

  double copy(std::uint64_t bytes) override {
    const auto start = core::Clock::now();
    std::memcpy(arena_.get(), slab_.get(), bytes);
    return core::seconds_since(start);
  }

 private:
  std::size_t threads_;
  device::HostDevice device_;
  std::shared_ptr<std::byte> slab_;
  std::shared_ptr<std::byte> arena_;
  std::unique_ptr<device::Queue> queue_;
  std::unique_ptr<device::Packer> packer_;
};

}  // namespace

std::unique_ptr<PackRig> make_host_rig(std::size_t threads, std::uint64_t bytes) {
  return std::make_unique<HostRig>(threads, bytes);
}

}  // namespace safeshuffle::bench
