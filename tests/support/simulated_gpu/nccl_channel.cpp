#include "support/simulated_gpu/nccl_channel.hpp"

#include <poll.h>
#include <sstream>

#include "support/simulated_gpu/sockets.hpp"

namespace simulated_gpu {
namespace {

constexpr std::uint64_t header_bytes = sizeof(MessageHeader);

std::string text(const MessageHeader& header) {
  std::ostringstream result;
  result << (header.kind == 0 ? "a message" : "a collective's message") << " of " << header.bytes
         << " bytes (kind " << header.kind << ", type " << header.type << ", root " << header.root
         << ")";
  return result.str();
}

}  // namespace

MessageHeader header_of(const Operation& operation) {
  MessageHeader header{.bytes = operation.bytes};
  if (!operation.collective()) return header;
  header.kind = static_cast<std::uint32_t>(operation.kind);
  header.type = operation.type;
  header.reduction = static_cast<std::uint32_t>(operation.reduction);
  header.root = static_cast<std::uint32_t>(operation.peer);
  return header;
}

short Channel::events() const noexcept {
  const int result = (sends_.empty() ? 0 : POLLOUT) | (receives_.empty() ? 0 : POLLIN);
  return static_cast<short>(result);
}

void Channel::progress() {
  while (!receives_.empty() && progress(receives_.front())) receives_.pop_front();
  while (!sends_.empty() && progress(sends_.front())) sends_.pop_front();
}

bool Channel::progress(Outgoing& message) {
  const std::uint64_t total = header_bytes + message.header.bytes;
  while (message.sent < total) {
    const bool in_header = message.sent < header_bytes;
    const std::byte* const from =
        in_header ? reinterpret_cast<const std::byte*>(&message.header) + message.sent
                  : message.data + (message.sent - header_bytes);
    const std::uint64_t end = in_header ? header_bytes : total;
    const std::size_t count = send_some(socket_, from, end - message.sent);
    if (count == 0) return false;
    message.sent += count;
  }
  return true;
}

bool Channel::progress(Incoming& message) {
  const std::uint64_t total = header_bytes + message.expected.bytes;
  while (message.received < total) {
    const bool in_header = message.received < header_bytes;
    std::byte* const to = in_header
                              ? reinterpret_cast<std::byte*>(&message.header) + message.received
                              : message.data + (message.received - header_bytes);
    const std::uint64_t end = in_header ? header_bytes : total;
    const std::size_t count = receive_some(socket_, to, end - message.received);
    if (count == 0) return false;
    message.received += count;
    if (message.received == header_bytes && message.header != message.expected) {
      throw Mismatch{"receives " + text(message.header) + " where it expects " +
                     text(message.expected)};
    }
  }
  return true;
}

}  // namespace simulated_gpu
