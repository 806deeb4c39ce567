// Small messages between the ranks of a group, over whatever connects their hosts. Knows no device.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "safeshuffle/all_gather.hpp"
#include "safeshuffle/options.hpp"

#include "core/deadline.hpp"

namespace safeshuffle::comm {

/// A group of ranks. Used by one thread at a time; see CollectiveCall.
class Control {
 public:
  Control(std::uint32_t rank, std::uint32_t size) : rank_(rank), size_(size) {}
  virtual ~Control() = default;
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  std::uint32_t rank() const noexcept { return rank_; }
  std::uint32_t size() const noexcept { return size_; }
  virtual std::string name() const = 0;

  /// Whether a collective call is using the group; for CollectiveCall. Thread-safe.
  std::atomic<bool>& taken() noexcept { return taken_; }

  /// Of the collective call in progress; may be null.
  void set_cancel(std::shared_ptr<CancelFlag> flag) noexcept { cancel_ = std::move(flag); }

  /// Throws CancelledError if somebody asks for it. Each request is obeyed once.
  void check_cancelled();

  /// The call was cancelled by whichever rank: a request of this one is obeyed, too.
  void end_cancel() noexcept {
    if (cancel_) *cancel_ = 0;
  }

  /// Throws ConfigError if the calling thread may not use it. Thread-safe.
  virtual void check_thread() const {}

  /// Every rank's text, in rank order; lengths may differ and exceed 2^31. Collective. Throws
  /// TimeoutError, which names the rank where it is known, if a connection is lost or there is no
  /// progress for as long as the deadline allows, because a peer is missing or has stopped.
  /// Afterwards, every call throws TransportError.
  virtual std::vector<std::string> all_gather(std::string_view mine, core::Deadline deadline) = 0;

 private:
  std::uint32_t rank_;
  std::uint32_t size_;
  std::atomic<bool> taken_{false};
  std::shared_ptr<CancelFlag> cancel_;
};

/// The group of one rank.
std::unique_ptr<Control> make_self_control();

/// Over the caller's own means. What `gather` throws that is not an Error of this library is thrown
/// as TransportError.
std::unique_ptr<Control> make_callers_control(std::uint32_t rank, std::uint32_t size,
                                              AllGather gather);

/// The ranks that do not answer a last all_gather within `patience`; only the first of them is
/// known, and none if all answer. For ranks that have given up on the group within that time of
/// each other.
std::vector<std::uint32_t> unresponsive_ranks(Control& control, std::chrono::milliseconds patience);

}  // namespace safeshuffle::comm
