// TCP sockets that never block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/deadline.hpp"
#include "core/descriptor.hpp"

namespace safeshuffle::comm {

/// The address of a TCP server.
struct Endpoint {
  std::string host;  ///< name or address, without brackets
  std::uint16_t port = 0;
};

/// Owns one socket. Movable.
class Socket {
 public:
  explicit Socket(int descriptor = -1) noexcept : descriptor_(descriptor) {}

  int descriptor() const noexcept { return descriptor_.value(); }

  /// Appends received bytes, until `to` has `most` bytes. False once the peer has disconnected,
  /// even if it sent something before.
  bool receive(std::string& to, std::size_t most);

  /// Sends `text` from `sent` on, and adds to `sent` what the system has accepted. False once the
  /// peer has disconnected.
  bool send(std::string_view text, std::size_t& sent);

  /// The port at which it listens.
  std::uint16_t port() const;

  /// Waits for `events` (as for poll) or the deadline; returns whether one occurred.
  bool wait(short events, const core::Deadline& deadline) const;

 private:
  core::Descriptor descriptor_;
};

/// Listens on the endpoint's port: on all interfaces, IPv6 and IPv4, or, if the host is a loopback
/// address or "localhost", on that one only. Throws TransportError.
Socket listen_at(const Endpoint& endpoint);

/// Listens on one numeric address only, at a port that the system chooses. Throws TransportError.
Socket listen_on(const std::string& address);

/// The next pending connection of `listener`, if one is still open. Throws TransportError if the
/// system has no descriptor or memory for it.
std::optional<Socket> accept_from(const Socket& listener);

/// Tries each address of the host once, for a few seconds at most. Throws TransportError.
Socket connect_to(const Endpoint& endpoint, const core::Deadline& deadline);

}  // namespace safeshuffle::comm
