// The data that one group sends to one peer and receives from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "support/simulated_gpu/nccl_operation.hpp"

namespace simulated_gpu {

/// Precedes the data of each message, so that ranks with different calls are detected.
struct MessageHeader {
  std::uint32_t kind = 0;
  std::uint32_t type = 0;
  std::uint32_t reduction = 0;
  std::uint32_t root = 0;
  std::uint64_t bytes = 0;

  bool operator==(const MessageHeader&) const = default;
};

/// What both ends of a message must agree on; the ends of a send and a receive look alike.
MessageHeader header_of(const Operation& operation);

/// Thrown when a peer sends a message that does not match what is expected.
struct Mismatch {
  std::string text;
};

/// Messages in order, in both directions at once, without ever blocking.
class Channel {
 public:
  explicit Channel(int socket) : socket_(socket) {}

  void send(const MessageHeader& header, const std::byte* data) {
    sends_.push_back({header, data});
  }
  void receive(const MessageHeader& header, std::byte* data) {
    receives_.push_back({header, data});
  }

  int socket() const noexcept { return socket_; }

  /// What to poll the socket for; 0 when all is done.
  short events() const noexcept;

  /// Sends and receives as much as possible. Throws PeerLost, Mismatch.
  void progress();

 private:
  struct Outgoing {
    MessageHeader header;
    const std::byte* data;
    std::uint64_t sent = 0;  ///< of header and data
  };
  struct Incoming {
    MessageHeader expected;
    std::byte* data;
    MessageHeader header = {};
    std::uint64_t received = 0;  ///< of header and data
  };

  bool progress(Outgoing& message);
  bool progress(Incoming& message);

  int socket_;
  std::deque<Outgoing> sends_;
  std::deque<Incoming> receives_;
};

}  // namespace simulated_gpu
