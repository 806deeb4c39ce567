#include "io/range_read.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "core/arithmetic.hpp"
#include "core/system_call.hpp"

namespace safeshuffle::io {
namespace {

bool aligned(const std::byte* address) {
  return reinterpret_cast<std::uintptr_t>(address) % core::page_bytes == 0;
}

}  // namespace

RangeRead::RangeRead(std::shared_ptr<File> file, std::uint64_t offset,
                     const device::StagingSlot& slot, bool may_leave)
    : file_(std::move(file)),
      slot_(slot),
      offset_(offset),
      to_(slot.host),
      choice_(file_->choose_access(offset, to_.size())) {
  if (choice_.direct) {
    begin_directly();
    return;
  }
  left_ = may_leave && choice_.cached;
  if (left_) advance_buffered(to_.size());
}

void RangeRead::begin_directly() {
  direct_ = file_->direct();
  if (direct_ == nullptr) obstacle_ = file_->direct_obstacle();
  device_ = file_->on_device();
  if (device_ == nullptr) device_obstacle_ = file_->device_obstacle();
}

std::optional<RangeRead::Call> RangeRead::next() {
  if (to_.empty()) {
    record();
    return {};
  }
  if (direct_ != nullptr) {
    if (const auto call = next_direct()) return call;
  }
  return Call{&file_->buffered(), offset_, to_};
}

/// Where whole pages may be read, one call reads all. Otherwise the unaligned head or tail of a
/// range is read through a separate whole block; what is between them goes straight to the device,
/// if that is possible.
std::optional<RangeRead::Call> RangeRead::next_direct() {
  calls_device_ = false;
  block_.reset();
  const std::size_t whole = core::align_down(to_.size(), core::page_bytes);
  const std::size_t skip = offset_ % core::page_bytes;
  if (slot_.whole_pages && device_ == nullptr && aligned(to_.data() - skip)) {
    const std::size_t pages = core::align_up(skip + to_.size(), core::page_bytes);
    return Call{direct_, offset_ - skip, {to_.data() - skip, pages}, true};
  }
  if (skip != 0 || whole == 0) {
    block_ = std::make_unique<Block>();
    return Call{direct_, offset_ - skip, block_->bytes, true};
  }
  std::byte* const destination = slot_.device_destination + (slot_.host.size() - to_.size());
  if (device_ != nullptr && aligned(destination)) {
    calls_device_ = true;
    return Call{nullptr, offset_, {destination, whole}, true, device_};
  }
  if (aligned(to_.data())) return Call{direct_, offset_, to_.first(whole), true};
  read_buffered_because("destination not aligned");
  return {};
}

void RangeRead::make(const Call& call) {
  std::size_t bytes = 0;
  try {
    bytes = call.device != nullptr ? call.device->read_some(call.offset, call.to)
                                   : call.handle->read_some(call.offset, call.to);
  } catch (const IoError& error) {
    return failed(error);
  }
  done(bytes);
}

void RangeRead::done(std::size_t bytes) {
  if (calls_device_) return done_on_device(bytes);
  if (direct_ != nullptr) return done_directly(bytes);
  if (bytes == 0) core::raise_ended_early(path(), offset_);
  advance_buffered(bytes);
}

/// What direct reads do not deliver, for example at the end of the file, is read through the page
/// cache, which also detects errors.
void RangeRead::done_directly(std::size_t bytes) {
  const std::size_t skip = offset_ % core::page_bytes;
  bytes = std::min(bytes - std::min(bytes, skip), to_.size());
  if (block_) std::copy_n(block_->bytes.begin() + skip, bytes, to_.begin());
  if (bytes == 0) return read_buffered_because("a direct read returned fewer bytes than requested");
  direct_bytes_ += bytes;
  advance(bytes);
}

/// The same holds for the device: direct reads into the slot follow.
void RangeRead::done_on_device(std::size_t bytes) {
  if (bytes % core::page_bytes != 0 || bytes == 0) {
    device_ = nullptr;
    device_obstacle_ = "a read returned fewer bytes than requested";
  }
  const std::size_t at = slot_.host.size() - to_.size();
  if (on_device_.end == 0) on_device_.begin = at;
  on_device_.end = at + bytes;
  device_bytes_ += bytes;
  direct_bytes_ += bytes;
  advance(bytes);
}

void RangeRead::failed(const IoError& error) {
  const int code = error.record().code;
  if (calls_device_ || direct_ == nullptr || !refuses_direct_reads(code)) throw error;
  file_->refuse_direct("read: " + std::generic_category().message(code));
  read_buffered_because(file_->direct_obstacle());
}

void RangeRead::advance_buffered(std::size_t bytes) noexcept {
  buffered_bytes_ += bytes;
  advance(bytes);
}

void RangeRead::advance(std::size_t bytes) noexcept {
  offset_ += bytes;
  to_ = to_.subspan(bytes);
}

void RangeRead::read_buffered_because(std::string reason) {
  if (device_ != nullptr) device_obstacle_ = "no direct I/O: " + reason;
  device_ = nullptr;
  direct_ = nullptr;
  block_.reset();
  obstacle_ = std::move(reason);
}

void RangeRead::record() const {
  file_->recorder().add(path(), {.direct = direct_bytes_,
                                 .buffered = buffered_bytes_,
                                 .device = device_bytes_,
                                 .choice = choice_.reason,
                                 .obstacle = obstacle_,
                                 .device_obstacle = device_obstacle_});
}

}  // namespace safeshuffle::io
