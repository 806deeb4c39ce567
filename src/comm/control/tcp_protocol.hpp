// What ranks send each other over TCP: frames, and in the rendezvous each rank's greeting and rank
// 0's answer. Only for ranks of the same build and byte order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "safeshuffle/error.hpp"

#include "comm/control/socket.hpp"

namespace safeshuffle::comm {

/// Bytes of a frame before its text.
constexpr std::size_t frame_header = 16;

/// The longest frames that are accepted from a peer before it is known to be a rank, in bytes.
constexpr std::size_t greeting_limit = 4096;
constexpr std::size_t answer_limit = std::size_t{1} << 20;

constexpr std::size_t job_limit = 128;

/// `text`, recognisable as one message of this protocol and version, and of known length.
std::string frame(std::string_view text);

/// Appends what the socket has of one frame, and nothing of the next. False once the peer has
/// disconnected. Throws TransportError if it is not a frame or longer than `limit` bytes,
/// ConfigError if it has another version of this protocol.
bool receive_frame(Socket& socket, std::string& frame, std::uint64_t limit);

bool is_whole(std::string_view frame);

/// How a rank introduces itself to rank 0.
struct Greeting {
  std::uint64_t size = 0;  ///< of its group
  std::uint64_t rank = 0;
  std::string job;    ///< distinguishes jobs that use the same port
  std::string nonce;  ///< random; distinguishes processes that claim the same rank
};

std::string encode(const Greeting& greeting);

/// Throws TransportError if `text` is not a greeting.
Greeting decode_greeting(std::string_view text);

/// The answer to all ranks once they are there, or that they cannot be a group.
std::string answer_of(const std::optional<ErrorRecord>& failure);

/// The answer to a rank that connects at the wrong time: it may try again.
std::string later(std::string_view cause);

/// Throws the error that `text` tells; TransportError if it says `later` or is not an answer.
void check_answer(std::string_view text);

}  // namespace safeshuffle::comm
