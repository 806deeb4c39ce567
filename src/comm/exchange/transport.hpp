// The exchange of one wave between the devices of a group of ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "safeshuffle/error.hpp"

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

  /// All ranks learn the least of their votes. 0: this rank has failed, so what it sends is
  /// useless.
  std::uint8_t vote = 1;

  /// For transports that block while others are late.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);

  /// Keeps the memory behind all messages alive while they may be in flight, even if the exchange
  /// is abandoned after a time-out.
  std::shared_ptr<const void> keep_alive;
};

/// An exchange in progress. Destroying one that is not done abandons it: the transport is then
/// broken and every later call on it throws.
class Pending {
 public:
  virtual ~Pending() = default;

  /// Advances the exchange, and may only now start it; true once all data is in place. Throws
  /// TransportError, and TimeoutError if a peer is known to be lost.
  virtual bool done() = 0;

  /// Once done: the least vote of all ranks, this one included. The same on all ranks.
  virtual std::uint8_t least_vote() const = 0;

  /// A number that changes while data arrives, as far as that is known.
  virtual std::size_t progress() const noexcept { return 0; }

  /// While not done: the peers that have not done their part, ascending; empty if unknown.
  virtual std::vector<std::uint32_t> missing() const { return {}; }
};

/// Moves data between the devices of a group. Used by one thread at a time; see CollectiveCall.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string name() const = 0;

  /// Connects to all peers, so that the first exchange need not; reads may be in progress
  /// meanwhile. Collective. Null if there is nothing to do.
  virtual std::unique_ptr<Pending> connect(device::Queue& /*queue*/) { return nullptr; }

  /// Otherwise no exchange may have messages.
  virtual bool moves_data() const noexcept { return true; }

  /// Upper bound on the device memory that the transport itself takes on this rank, in bytes.
  virtual std::uint64_t device_bytes() const noexcept { return 0; }

  /// Starts the exchange of a wave, ordered after what is enqueued on `queue`. Collective. A second
  /// exchange must not start before the first is done. None is done before all ranks have started
  /// theirs. So ranks are in step whenever they exchange, even if some of them have nothing to.
  virtual std::unique_ptr<Pending> exchange(Exchange exchange, device::Queue& queue) = 0;
};

/// The group of one rank.
std::unique_ptr<Transport> make_self_transport();

}  // namespace safeshuffle::comm
