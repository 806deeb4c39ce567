// TCP sockets that never block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "core/deadline.hpp"
#include "core/descriptor.hpp"

namespace safeshuffle::comm {

/// Where a TCP server is.
struct Endpoint {
  std::string host;  ///< name or address, without brackets
  std::uint16_t port = 0;
};

/// Owns one socket. Movable.
class Socket {
 public:
  explicit Socket(int descriptor = -1) noexcept : descriptor_(descriptor) {}

  int descriptor() const noexcept { return descriptor_.value(); }

  /// Appends what has arrived, until `to` has `most` bytes. False once the peer is gone, whatever
  /// it has sent before.
  bool receive(std::string& to, std::size_t most);

  /// Removes from `rest` what the system has taken. False once the peer is gone.
  bool send(std::string& rest);

  /// Waits for `events` (of poll) or the deadline; returns whether there are some.
  bool wait(short events, const core::Deadline& deadline) const;

 private:
  core::Descriptor descriptor_;
};

/// Listens on the endpoint's port: on all interfaces, IPv6 and IPv4, or, if the host is a loopback
/// address or "localhost", on that one only. Throws TransportError.
Socket listen_at(const Endpoint& endpoint);

/// The next connection that waits at `listener`, if there is one that still works. Throws
/// TransportError if the system has no descriptor or memory for it.
std::optional<Socket> accept_from(const Socket& listener);

/// Tries each address of the host once, for a few seconds at most. Throws TransportError.
Socket connect_to(const Endpoint& endpoint, const core::Deadline& deadline);

}  // namespace safeshuffle::comm
