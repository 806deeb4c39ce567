#include "support/simulated_gpu/sockets.hpp"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <poll.h>
#include <stdexcept>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <system_error>
#include <unistd.h>

namespace simulated_gpu {
namespace {

[[noreturn]] void fail(const char* call) {
  throw std::system_error(errno, std::generic_category(), call);
}

Descriptor make_socket() {
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.number() < 0) fail("socket");
  return socket;
}

/// An abstract name, which begins with a zero: no file is left where a process is killed.
sockaddr_un address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof address.sun_path) throw std::length_error(name);
  std::memcpy(static_cast<char*>(address.sun_path) + 1, name.data(), name.size());
  return address;
}

/// Waits for any of the descriptors, forever if `milliseconds` is negative. Throws Aborted.
void poll_unless_aborted(int descriptor, const AbortSignal& abort, int milliseconds) {
  std::array<pollfd, 2> polled{pollfd{abort.descriptor(), POLLIN, 0},
                               pollfd{descriptor, POLLIN, 0}};
  while (poll(polled.data(), polled.size(), milliseconds) < 0) {
    if (errno != EINTR) fail("poll");
  }
  if (polled[0].revents != 0) throw Aborted{};
}

bool must_wait() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

Descriptor::~Descriptor() {
  if (number_ >= 0) close(number_);
}

AbortSignal::AbortSignal() : event_(eventfd(0, EFD_CLOEXEC)) {
  if (event_.number() < 0) fail("eventfd");
}

void AbortSignal::raise() {
  const std::uint64_t one = 1;
  if (write(event_.number(), &one, sizeof one) != sizeof one) fail("eventfd");
}

bool AbortSignal::raised() const {
  pollfd polled{event_.number(), POLLIN, 0};
  return poll(&polled, 1, 0) > 0;
}

void AbortSignal::wait() const {
  pollfd polled{event_.number(), POLLIN, 0};
  while (poll(&polled, 1, -1) < 0) {
  }
}

void wait_readable(const Descriptor& socket, const AbortSignal& abort) {
  poll_unless_aborted(socket.number(), abort, -1);
}

void wait_before_retry(const AbortSignal& abort) {
  poll_unless_aborted(-1, abort, 2);
}

Descriptor listen_at(const std::string& name) {
  Descriptor socket = make_socket();
  const sockaddr_un address = address_of(name);
  const auto* const at = reinterpret_cast<const sockaddr*>(&address);
  if (bind(socket.number(), at, sizeof address) != 0) fail("bind");
  if (listen(socket.number(), SOMAXCONN) != 0) fail("listen");
  return socket;
}

Descriptor connect_to(const std::string& name, const AbortSignal& abort) {
  const sockaddr_un address = address_of(name);
  for (;;) {
    Descriptor socket = make_socket();
    const auto* const to = reinterpret_cast<const sockaddr*>(&address);
    if (connect(socket.number(), to, sizeof address) == 0) return socket;
    if (errno != ECONNREFUSED && errno != EINTR) fail("connect");
    wait_before_retry(abort);
  }
}

Descriptor accept_from(const Descriptor& listener, const AbortSignal& abort) {
  wait_readable(listener, abort);
  Descriptor socket(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
  if (socket.number() < 0) fail("accept");
  return socket;
}

void send_small(const Descriptor& socket, const void* data, std::size_t bytes) {
  if (send_some(socket.number(), data, bytes) != bytes) throw PeerLost{};
}

void receive_all(const Descriptor& socket, void* data, std::size_t bytes,
                 const AbortSignal& abort) {
  auto* at = static_cast<std::byte*>(data);
  while (bytes > 0) {
    wait_readable(socket, abort);
    const std::size_t count = receive_some(socket.number(), at, bytes);
    at += count;
    bytes -= count;
  }
}

std::size_t send_some(int socket, const void* data, std::size_t bytes) {
  const ssize_t count = send(socket, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count >= 0) return static_cast<std::size_t>(count);
  if (must_wait()) return 0;
  throw PeerLost{};
}

std::size_t receive_some(int socket, void* data, std::size_t bytes) {
  const ssize_t count = recv(socket, data, bytes, MSG_DONTWAIT);
  if (count > 0) return static_cast<std::size_t>(count);
  if (count < 0 && must_wait()) return 0;
  throw PeerLost{};
}

}  // namespace simulated_gpu
