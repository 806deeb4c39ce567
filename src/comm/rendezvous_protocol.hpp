// The messages of a rendezvous: each rank's greeting, which says whether it is ready, rank 0's
// answer, and one byte that acknowledges it. Only for ranks of the same build and byte order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "safeshuffle/error.hpp"

namespace safeshuffle::comm {

/// The longest messages that are accepted from a peer, in bytes.
constexpr std::size_t greeting_limit = 4096;
constexpr std::size_t answer_limit = (std::size_t{1} << 20) + 1024;
constexpr std::size_t job_limit = 128;

/// What a rank sends after it received the answer.
constexpr char acknowledgement = '.';

/// How a rank introduces itself to rank 0.
struct Greeting {
  std::uint64_t size = 0;  ///< of its group
  std::uint64_t rank = 0;
  std::string job;    ///< distinguishes jobs that use the same port
  std::string nonce;  ///< random; distinguishes processes that claim the same rank
  std::optional<ErrorRecord> failure = {};  ///< why it is not ready; nothing if it is
};

/// `text`, recognisable as one message of this protocol and version, and of known length.
std::string frame(std::string_view text);

/// The text of a frame, or nothing as long as `bytes` is only the beginning of one. Throws
/// TransportError if it is not a frame or longer than `limit` bytes, ConfigError if it has another
/// version of this protocol.
std::optional<std::string> unframe(std::string_view bytes, std::size_t limit);

std::string encode(const Greeting& greeting);

/// Throws TransportError if `text` is not a greeting.
Greeting decode_greeting(std::string_view text);

/// The error, if any, that `step` throws on `rank`, shortened to fit a greeting.
std::optional<ErrorRecord> failure_of(const std::function<std::string()>& step, std::uint32_t rank);

/// Rank 0's answer: the text that `step` returns, or the error that it throws.
std::string answer_of(const std::function<std::string()>& step);

/// The answer that makes all ranks throw `failure`.
std::string answer_of(const ErrorRecord& failure);

/// A failure that the other ranks do not learn of: an error of the rank alone, not of the group.
ErrorRecord as_own(ErrorRecord failure);

/// The answer to a rank that connects at the wrong time: it may try again.
std::string later(std::string_view cause);

bool is_failure(std::string_view answer) noexcept;

/// Throws TransportError if `text` is not an answer, or says `later`.
void require_final(std::string_view text);

/// The content of a final answer: returns the text of `step`, or throws the error.
std::string open_answer(std::string_view answer);

}  // namespace safeshuffle::comm
