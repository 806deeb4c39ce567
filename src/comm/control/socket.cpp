#include "comm/control/socket.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <system_error>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"

namespace safeshuffle::comm {
namespace {

constexpr int socket_type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

[[noreturn]] void raise_code(int code, const std::string& action) {
  throw TransportError(
      ErrorRecord{.code = code, .cause = action + ": " + std::generic_category().message(code)});
}

Addresses look_up(const Endpoint& endpoint, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code =
      getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (code != 0) {
    throw TransportError("cannot look up '" + endpoint.host + "': " + gai_strerror(code));
  }
  return {found, &freeaddrinfo};
}

bool is_loopback(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

/// Addresses to listen on; the first one that the system supports is used.
std::vector<std::string> listening_hosts(const std::string& host) {
  if (host == "localhost") return {"127.0.0.1", "::1"};
  if (is_loopback(host)) return {host};
  return {"::", "0.0.0.0"};
}

void set_option(const Socket& socket, int level, int option, int value) {
  static_cast<void>(setsockopt(socket.descriptor(), level, option, &value, sizeof value));
}

/// Messages are small, and peers wait for each of them.
Socket without_delay(Socket socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  return socket;
}

/// Returns 0 and the listening socket, or errno.
int try_listen(const addrinfo& address, Socket& result) {
  Socket socket(::socket(address.ai_family, socket_type, 0));
  if (socket.descriptor() == -1) return errno;
  // Allows a port that an earlier job left in TIME_WAIT, but not one that is in use.
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.ai_family == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(socket.descriptor(), address.ai_addr, address.ai_addrlen) != 0) return errno;
  if (listen(socket.descriptor(), SOMAXCONN) != 0) return errno;
  result = std::move(socket);
  return 0;
}

int pending_error(const Socket& socket) {
  int code = 0;
  socklen_t size = sizeof code;
  return getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &code, &size) == 0 ? code : errno;
}

/// Returns 0 and the connected socket, or errno.
int try_connect(const addrinfo& address, const core::Deadline& deadline, Socket& result) {
  // The system itself may try for minutes.
  constexpr std::chrono::milliseconds patience{3000};
  Socket socket(::socket(address.ai_family, socket_type, 0));
  if (socket.descriptor() == -1) return errno;
  if (connect(socket.descriptor(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    const core::Deadline attempt(std::min(patience, deadline.remaining()));
    if (!socket.wait(POLLOUT, attempt)) return ETIMEDOUT;
    if (const int code = pending_error(socket); code != 0) return code;
  }
  result = std::move(socket);
  return 0;
}

/// Whether another address of the same host may work.
bool is_unavailable(int code) {
  return code == EAFNOSUPPORT || code == EADDRNOTAVAIL;
}

bool is_temporary(int code) {
  return code == EAGAIN || code == EWOULDBLOCK || code == EINTR;
}

}  // namespace

bool Socket::receive(std::string& to, std::size_t most) {
  std::array<char, 4096> buffer;
  while (to.size() < most) {
    const std::size_t room = std::min(most - to.size(), buffer.size());
    const ssize_t count = recv(descriptor(), buffer.data(), room, 0);
    if (count < 0) return is_temporary(errno);
    if (count == 0) return false;
    to.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return true;
}

bool Socket::send(std::string_view text, std::size_t& sent) {
  const ssize_t count = ::send(descriptor(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
  if (count < 0) return is_temporary(errno);
  sent += static_cast<std::size_t>(count);
  return true;
}

std::uint16_t Socket::port() const {
  sockaddr_in6 address{};  // a port is at the same place in one of IPv4
  socklen_t size = sizeof address;
  if (getsockname(descriptor(), reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    return ntohs(address.sin6_port);
  }
  raise_code(errno, "cannot find the port");
}

bool Socket::wait(short events, const core::Deadline& deadline) const {
  constexpr std::chrono::milliseconds longest{60'000};
  pollfd entry{descriptor(), events, 0};
  while (!deadline.expired()) {
    const auto time = std::min(longest, deadline.remaining());
    if (poll(&entry, 1, static_cast<int>(time.count())) > 0) return true;
  }
  return false;
}

Socket listen_at(const Endpoint& endpoint) {
  Socket socket;
  int code = EADDRNOTAVAIL;
  for (const std::string& host : listening_hosts(endpoint.host)) {
    const Addresses addresses = look_up({host, endpoint.port}, AI_NUMERICHOST | AI_PASSIVE);
    code = try_listen(*addresses, socket);
    if (!is_unavailable(code)) break;
  }
  if (code != 0) raise_code(code, "cannot listen on port " + std::to_string(endpoint.port));
  return socket;
}

Socket listen_on(const std::string& address) {
  Socket socket;
  const Addresses addresses = look_up({address, 0}, AI_NUMERICHOST);
  const int code = try_listen(*addresses, socket);
  if (code != 0) raise_code(code, "cannot listen on " + address);
  return socket;
}

std::optional<Socket> accept_from(const Socket& listener) {
  constexpr int flags = SOCK_NONBLOCK | SOCK_CLOEXEC;
  const int descriptor = accept4(listener.descriptor(), nullptr, nullptr, flags);
  if (descriptor != -1) return without_delay(Socket(descriptor));
  const bool exhausted = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
  if (exhausted) raise_code(errno, "cannot accept a connection");
  return std::nullopt;  // any other error concerns that connection only
}

Socket connect_to(const Endpoint& endpoint, const core::Deadline& deadline) {
  const Addresses addresses = look_up(endpoint, 0);
  Socket socket;
  int code = 0;
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    code = try_connect(*address, deadline, socket);
    if (code == 0) return without_delay(std::move(socket));
  }
  raise_code(code, "cannot connect");
}

}  // namespace safeshuffle::comm
