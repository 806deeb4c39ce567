// What the pipeline needs from a group of ranks: a small control plane and the exchange of one
// wave.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/error.hpp"

#include "core/deadline.hpp"
#include "device/device.hpp"

namespace safeshuffle::comm {

/// One run between this rank and `peer`: contiguous device memory, any size above 0.
struct Message {
  std::uint32_t peer = 0;
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
};

/// Everything one rank moves in one wave. Messages to a peer are received in the order in which
/// they are sent; none to itself. A broadcast's peer is its root, where `data` is the source; all
/// ranks list the same broadcasts (root, bytes) in the same order.
struct Exchange {
  std::vector<Message> sends;
  std::vector<Message> receives;
  std::vector<Message> broadcasts;

  /// This rank has failed, so the data it sends is useless. All ranks learn of this, see
  /// Pending::failed.
  bool failed = false;

  /// Keeps the memory behind all messages alive while they may be in flight, even if the exchange
  /// is abandoned after a time-out.
  std::shared_ptr<const void> keep_alive;
};

/// An exchange in progress. Destroying one that is not done abandons it: the transport is then
/// broken and every later call on it throws.
class Pending {
 public:
  virtual ~Pending() = default;

  /// Advances the exchange; true once all data is in place. Throws TransportError.
  virtual bool done() = 0;

  /// Once done: whether any rank, this one included, began the exchange with `failed`. The same on
  /// all ranks.
  virtual bool failed() const = 0;

  /// While not done: the peers that have not done their part, ascending; empty if unknown.
  virtual std::vector<std::uint32_t> missing() const { return {}; }
};

/// A group of ranks. Used by one thread at a time; see CollectiveCall.
class Transport {
 public:
  virtual ~Transport() = default;

  /// Whether a collective call is using the group; for CollectiveCall. Thread-safe.
  std::atomic<bool>& taken() noexcept { return taken_; }

  /// Throws ConfigError if the calling thread may not use the transport. Thread-safe.
  virtual void check_thread() const {}

  virtual std::string name() const = 0;
  virtual std::uint32_t rank() const noexcept = 0;
  virtual std::uint32_t size() const noexcept = 0;

  /// Every rank's text, in rank order; lengths may differ and exceed 2^31. Collective. Throws
  /// TimeoutError if there is no progress for as long as the deadline allows, because a peer is
  /// missing or has stopped.
  virtual std::vector<std::string> all_gather(std::string_view mine, core::Deadline deadline) = 0;

  /// Connects to all peers, so that the first exchange need not; reads may be in progress
  /// meanwhile. Collective. Throws as `all_gather`.
  virtual void connect(device::Queue& /*queue*/, core::Deadline /*deadline*/) {}

  /// Upper bound on the device memory that the transport itself takes on this rank, in bytes.
  virtual std::uint64_t device_bytes() const noexcept { return 0; }

  /// Starts one wave, ordered after what is enqueued on `queue`. Collective. A second exchange must
  /// not start before the first is done. None is done before all ranks have started theirs. So
  /// ranks stay in step, and a time-out bounds one wave, even if some ranks have nothing to
  /// exchange.
  virtual std::unique_ptr<Pending> exchange(Exchange exchange, device::Queue& queue) = 0;

 private:
  std::atomic<bool> taken_{false};
};

/// The group of one rank.
std::unique_ptr<Transport> make_self_transport();

}  // namespace safeshuffle::comm
