#include "device/cuda/cuda_staging.hpp"

#include <utility>

#include "core/arithmetic.hpp"
#include "core/page.hpp"
#include "core/thread.hpp"
#include "device/cuda/call.hpp"
#include "device/cuda/cufile_reads.hpp"

namespace safeshuffle::device {
namespace {

/// A page more than the slot's data takes, which may begin anywhere in the first one.
std::size_t pinned_bytes_of_slot(std::size_t bytes) noexcept {
  return core::align_up(bytes, core::page_bytes) + core::page_bytes;
}

}  // namespace

CudaStaging::CudaStaging(SharedSession session, std::size_t slot_bytes, std::size_t slots)
    : session_(std::move(session)),
      slot_stride_(pinned_bytes_of_slot(slot_bytes)),
      ring_(allocate_pinned(session_, slot_stride_ * slots)),
      stream_(make_stream(session_)) {
  for (std::size_t slot = 0; slot < slots; ++slot) {
    events_.push_back(make_event(session_));
    free_.push_back(slot);
  }
  waiter_ = core::start_thread([this] { wait_for_copies(); });
}

CudaStaging::~CudaStaging() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  copying_.notify_one();
  waiter_.join();
}

std::optional<StagingSlot> CudaStaging::try_acquire(std::byte* device_destination,
                                                    std::size_t bytes, std::size_t skip) {
  const std::scoped_lock lock(mutex_);
  require_working();
  if (free_.empty()) return {};
  const std::size_t slot = free_.back();
  free_.pop_back();
  return StagingSlot{
      {ring_.get() + slot * slot_stride_ + skip, bytes}, device_destination, slot, true};
}

std::unique_ptr<DeviceReads> CudaStaging::make_device_reads(
    std::span<const std::span<std::byte>> memory) {
  return make_cufile_reads(session_, memory);
}

void CudaStaging::commit(StagingSlot slot, std::function<void()> landed) {
  std::list<Copy> copy;  // allocated before the copy is enqueued, which must then be waited for
  try {
    copy.push_back({slot.index, std::move(landed)});
    start(slot);
  } catch (...) {
    discard(slot);
    throw;
  }
  const std::scoped_lock lock(mutex_);
  copies_.splice(copies_.end(), copy);
  copying_.notify_one();
}

void CudaStaging::start(const StagingSlot& slot) {
  const GpuScope scope(session_->gpu());
  for (const StagingSlot::Part& part : slot.parts_to_copy()) {
    if (part.empty()) continue;
    enqueue_copy(slot.device_destination + part.begin,
                 slot.host.subspan(part.begin, part.end - part.begin));
  }
  record(events_[slot.index], stream_.get());
}

void CudaStaging::enqueue_copy(std::byte* destination, std::span<const std::byte> source) {
  check_cuda(cudaMemcpyAsync(destination, source.data(), source.size(), cudaMemcpyHostToDevice,
                             stream_.get()),
             "cudaMemcpyAsync");
}

void CudaStaging::discard(StagingSlot slot) noexcept {
  const std::scoped_lock lock(mutex_);
  free_.push_back(slot.index);  // has room for all slots: never allocates
}

void CudaStaging::wait_for_copies() {
  while (const std::optional<Copy> copy = next_copy()) {
    await(*copy);
    discard({.host = {}, .index = copy->slot});
    copy->landed();
  }
}

std::optional<CudaStaging::Copy> CudaStaging::next_copy() {
  std::unique_lock lock(mutex_);
  copying_.wait(lock, [this] { return stopping_ || !copies_.empty(); });
  if (copies_.empty()) return {};
  Copy copy = std::move(copies_.front());
  copies_.pop_front();
  return copy;
}

void CudaStaging::await(const Copy& copy) {
  try {
    const GpuScope scope(session_->gpu());
    wait_for(events_[copy.slot]);
  } catch (const Error& error) {
    const std::scoped_lock lock(mutex_);
    if (!error_) error_ = error.record();
  }
}

void CudaStaging::require_working() const {
  if (error_) throw TransportError(*error_);
}

}  // namespace safeshuffle::device
