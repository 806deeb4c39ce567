// Staging of file data through pinned memory.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "safeshuffle/error.hpp"

#include "device/cuda/session.hpp"
#include "device/device.hpp"

namespace safeshuffle::device {

/// A ring of slots, one copy stream, and a thread that waits for copies in order. A copy that fails
/// counts as landed, and every later call throws its error: the process can no longer use the GPU,
/// and the next use of any queue fails, too. The destructor waits for copies in progress.
/// Thread-safe.
class CudaStaging final : public Staging {
 public:
  /// Throws MemoryError, TransportError.
  CudaStaging(SharedSession session, std::size_t slot_bytes, std::size_t slots);
  ~CudaStaging() override;

  std::optional<StagingSlot> try_acquire(std::byte* device_destination, std::size_t bytes,
                                         std::size_t skip) override;
  std::unique_ptr<DeviceReads> make_device_reads(
      std::span<const std::span<std::byte>> memory) override;
  void commit(StagingSlot slot, std::function<void()> landed) override;
  void discard(StagingSlot slot) noexcept override;
  std::uint64_t pinned_bytes() const noexcept override { return slot_stride_ * events_.size(); }

 private:
  struct Copy {
    std::size_t slot = 0;
    std::function<void()> landed;
  };

  void start(const StagingSlot& slot);
  void enqueue_copy(std::byte* destination, std::span<const std::byte> source);
  void wait_for_copies();
  std::optional<Copy> next_copy();
  void await(const Copy& copy);
  void require_working() const;

  SharedSession session_;
  std::size_t slot_stride_;
  std::shared_ptr<std::byte> ring_;
  Stream stream_;
  std::vector<Event> events_;        // by slot
  mutable std::mutex mutex_;         // guards what follows
  std::condition_variable copying_;  // a copy has begun, or none will; for `waiter_`
  std::vector<std::size_t> free_;
  std::list<Copy> copies_;
  std::optional<ErrorRecord> error_;
  bool stopping_ = false;
  std::thread waiter_;  // last: it uses the rest
};

}  // namespace safeshuffle::device
