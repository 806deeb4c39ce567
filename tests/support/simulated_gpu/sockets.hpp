// Stream sockets between the ranks of a machine, and a signal that ends waiting for them.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

namespace simulated_gpu {

/// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  int number() const noexcept { return number_; }

 private:
  int number_ = -1;
};

/// Once raised, for good. Thread-safe.
class AbortSignal {
 public:
  AbortSignal();
  void raise();
  bool raised() const;
  void wait() const;

  /// Readable once it is raised.
  int descriptor() const noexcept { return event_.number(); }

 private:
  Descriptor event_;
};

/// Thrown if the signal ended the waiting.
struct Aborted {};

/// Thrown when the other end is gone.
struct PeerLost {};

/// Waits until `socket` can be read. Throws Aborted.
void wait_readable(const Descriptor& socket, const AbortSignal& abort);

/// Waits briefly before a retry. Throws Aborted.
void wait_before_retry(const AbortSignal& abort);

/// A socket with this name, unique on this machine, to which others can connect.
Descriptor listen_at(const std::string& name);

/// Connects as soon as there is a listener. Throws Aborted.
Descriptor connect_to(const std::string& name, const AbortSignal& abort);

/// The next incoming connection. Throws Aborted.
Descriptor accept_from(const Descriptor& listener, const AbortSignal& abort);

/// Sends a few bytes, which fit in a socket's buffer. Throws PeerLost.
void send_small(const Descriptor& socket, const void* data, std::size_t bytes);

/// Throws PeerLost, Aborted.
void receive_all(const Descriptor& socket, void* data, std::size_t bytes, const AbortSignal& abort);

/// Return the number of bytes that could be transferred without waiting. Throw PeerLost.
std::size_t send_some(int socket, const void* data, std::size_t bytes);
std::size_t receive_some(int socket, void* data, std::size_t bytes);

}  // namespace simulated_gpu
