// Staging for a device whose memory the host can write, and for one where it cannot.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "device/device.hpp"
#include "support/sample_file.hpp"

namespace safeshuffle::testing {

/// What the copy engine of a GPU does.
inline void copy_to_device(const device::StagingSlot& slot) {
  for (const auto [begin, end] : slot.parts_to_copy()) {
    std::ranges::copy(slot.host.subspan(begin, end - begin), slot.device_destination + begin);
  }
}

/// Hands out the destination itself.
class DirectStaging final : public device::Staging {
 public:
  std::optional<device::StagingSlot> try_acquire(std::byte* destination, std::size_t bytes,
                                                 std::size_t /*skip*/) override {
    return device::StagingSlot{{destination, bytes}, destination, 0};
  }
  void commit(device::StagingSlot, std::function<void()> landed) override { landed(); }
  void discard(device::StagingSlot) noexcept override {}
  std::uint64_t pinned_bytes() const noexcept override { return 0; }
};

/// One slot or none; what is committed lands only when the test lets it.
class HeldStaging final : public device::Staging {
 public:
  HeldStaging(std::size_t slot_bytes, bool has_slot) : memory_(slot_bytes), free_(has_slot) {}

  std::optional<device::StagingSlot> try_acquire(std::byte* destination, std::size_t bytes,
                                                 std::size_t /*skip*/) override {
    if (!free_.exchange(false)) return {};
    return device::StagingSlot{memory_.span().first(bytes), destination, 0};
  }

  void commit(device::StagingSlot slot, std::function<void()> landed) override {
    const std::scoped_lock lock(mutex_);
    held_ = slot;
    landed_ = std::move(landed);
  }

  void discard(device::StagingSlot) noexcept override { free_ = true; }
  std::uint64_t pinned_bytes() const noexcept override { return memory_.span().size(); }

  /// Whether something is held that was committed.
  bool holds() {
    const std::scoped_lock lock(mutex_);
    return landed_ != nullptr;
  }

  /// Lands it.
  void land() {
    std::function<void()> landed;
    {
      const std::scoped_lock lock(mutex_);
      copy_to_device(held_);
      landed = std::exchange(landed_, nullptr);
    }
    free_ = true;
    landed();
  }

 private:
  AlignedMemory memory_;
  std::atomic<bool> free_;
  std::mutex mutex_;
  device::StagingSlot held_;
  std::function<void()> landed_;
};

/// A few separate slots; data lands later, from another thread.
class DelayedStaging final : public device::Staging {
 public:
  DelayedStaging(std::size_t slot_bytes, std::size_t slots) : slot_bytes_(slot_bytes) {
    for (std::size_t i = 0; i < slots; ++i) {
      memory_.emplace_back(slot_bytes + page);
      free_.push_back(i);
    }
    copier_ = std::thread([this] { copy_all(); });
  }

  ~DelayedStaging() override {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    copier_.join();
  }

  std::optional<device::StagingSlot> try_acquire(std::byte* destination, std::size_t bytes,
                                                 std::size_t skip) override {
    if (bytes > slot_bytes_) throw std::length_error("piece larger than a slot");
    const std::scoped_lock lock(mutex_);
    if (free_.empty()) return {};
    const std::size_t index = free_.back();
    free_.pop_back();
    return device::StagingSlot{memory_[index].span().subspan(skip, bytes), destination, index};
  }

  void commit(device::StagingSlot slot, std::function<void()> landed) override {
    {
      const std::scoped_lock lock(mutex_);
      transfers_.push_back({slot, std::move(landed)});
    }
    changed_.notify_all();
  }

  void discard(device::StagingSlot slot) noexcept override { release(slot.index); }

  std::uint64_t pinned_bytes() const noexcept override { return slot_bytes_ * memory_.size(); }

  /// The number of free slots.
  std::size_t free_slots() {
    const std::scoped_lock lock(mutex_);
    return free_.size();
  }

 private:
  static constexpr std::size_t page = 4096;
  struct Transfer {
    device::StagingSlot slot;
    std::function<void()> landed;
  };

  void copy_all() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !transfers_.empty(); });
      if (transfers_.empty()) return;
      const Transfer transfer = std::move(transfers_.front());
      transfers_.pop_front();
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      copy_to_device(transfer.slot);
      release(transfer.slot.index);
      transfer.landed();
      lock.lock();
    }
  }

  void release(std::size_t index) noexcept {
    const std::scoped_lock lock(mutex_);
    free_.push_back(index);
  }

  const std::size_t slot_bytes_;
  std::vector<AlignedMemory> memory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> free_;
  std::deque<Transfer> transfers_;
  bool stopping_ = false;
  std::thread copier_;
};

}  // namespace safeshuffle::testing
