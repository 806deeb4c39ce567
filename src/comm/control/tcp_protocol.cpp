#include "comm/control/tcp_protocol.hpp"

#include <algorithm>

#include "core/error_wire.hpp"
#include "core/wire.hpp"

namespace safeshuffle::comm {
namespace {

// A frame: the magic, whose last byte is the version, the length of the text, the text.
constexpr std::string_view magic("sfshuf\x17\x04", 8);
static_assert(frame_header == magic.size() + sizeof(std::uint64_t));

// The first byte of a text.
constexpr char greeting_mark = '?';
constexpr char success_mark = '+';
constexpr char failure_mark = '-';
constexpr char later_mark = '~';

[[noreturn]] void not_understood() {
  throw TransportError("the peer is not a rank of this job");
}

void check_magic(std::string_view bytes) {
  const std::size_t version_at = magic.size() - 1;
  const std::size_t known = std::min(bytes.size(), version_at);
  if (bytes.substr(0, known) != magic.substr(0, known)) not_understood();
  if (bytes.size() > version_at && bytes[version_at] != magic[version_at]) {
    throw ConfigError("ranks run incompatible versions of the library");
  }
}

/// Of the text; the frame has at least its header.
std::uint64_t length_of(std::string_view frame) {
  return core::WireReader(frame.substr(magic.size())).fixed_number();
}

}  // namespace

std::string frame(std::string_view text) {
  const std::string length = core::WireWriter().put_fixed(text.size()).take();
  return std::string(magic).append(length).append(text);
}

bool receive_frame(Socket& socket, std::string& frame, std::uint64_t limit) {
  const bool alive = frame.size() >= frame_header || socket.receive(frame, frame_header);
  check_magic(frame);
  if (frame.size() < frame_header) return alive;
  const std::uint64_t length = length_of(frame);
  if (length > limit - frame_header) not_understood();
  return socket.receive(frame, frame_header + length);
}

bool is_whole(std::string_view frame) {
  return frame.size() >= frame_header && frame.size() == frame_header + length_of(frame);
}

static auto fields(core::As<Greeting> auto& greeting) {
  return std::tie(greeting.size, greeting.rank, greeting.job, greeting.nonce);
}

std::string encode(const Greeting& greeting) {
  return greeting_mark + core::to_wire(greeting);
}

Greeting decode_greeting(std::string_view text) {
  if (text.empty() || text.front() != greeting_mark) not_understood();
  return core::from_wire<Greeting>(text.substr(1));
}

std::string answer_of(const std::optional<ErrorRecord>& failure) {
  return failure ? failure_mark + core::encode(*failure) : std::string(1, success_mark);
}

std::string later(std::string_view cause) {
  return later_mark + std::string(cause);
}

void check_answer(std::string_view text) {
  if (text.starts_with(success_mark)) return;
  if (text.starts_with(failure_mark)) raise(core::decode_error(text.substr(1)));
  if (text.starts_with(later_mark)) throw TransportError(std::string(text.substr(1)));
  // A connection to a local port that has no listener yet may connect to itself: then this is our
  // own greeting.
  not_understood();
}

}  // namespace safeshuffle::comm
