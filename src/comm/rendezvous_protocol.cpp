#include "comm/rendezvous_protocol.hpp"

#include <algorithm>

#include "core/error_wire.hpp"
#include "core/text.hpp"
#include "core/wire.hpp"

namespace safeshuffle::comm {
namespace {

// A frame: the magic, whose last byte is the version, the length of the text, the text.
constexpr std::string_view magic("sfshuf\x17\x02", 8);
constexpr std::size_t frame_header = magic.size() + sizeof(std::uint64_t);
constexpr std::size_t blob_limit = std::size_t{1} << 20;

// The first byte of a text.
constexpr char greeting_mark = '?';
constexpr char blob_mark = '+';
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

std::string blob_of(const std::function<std::string()>& step) {
  std::string blob = step();
  if (blob.size() > blob_limit) {
    throw ConfigError("the rendezvous data exceeds the limit of " + std::to_string(blob_limit) +
                      " bytes");
  }
  return blob;
}

/// The exception being handled, attributed to `rank` and shortened to fit any message.
ErrorRecord current_failure(std::uint32_t rank) {
  constexpr std::size_t longest_text = 1024;
  ErrorRecord record = core::current_error();
  if (record.rank < 0) record.rank = static_cast<std::int32_t>(rank);
  for (std::string* text : {&record.file, &record.tensor, &record.cause}) {
    *text = core::shortened(*text, longest_text);
  }
  return record;
}

}  // namespace

std::string frame(std::string_view text) {
  core::WireWriter out;
  out.put(text);
  return std::string(magic) + out.take();
}

std::optional<std::string> unframe(std::string_view bytes, std::size_t limit) {
  check_magic(bytes);
  if (bytes.size() < frame_header) return std::nullopt;
  const std::string_view body = bytes.substr(magic.size());
  const std::uint64_t length = core::WireReader(body).number();
  if (length > limit - frame_header) not_understood();
  if (bytes.size() < frame_header + length) return std::nullopt;
  return core::WireReader(body).text();
}

std::string encode(const Greeting& greeting) {
  core::WireWriter out;
  out.put(greeting.size).put(greeting.rank).put(greeting.job).put(greeting.nonce);
  out.put(greeting.failure ? core::encode(*greeting.failure) : "");
  return greeting_mark + out.take();
}

Greeting decode_greeting(std::string_view text) {
  if (text.empty() || text.front() != greeting_mark) not_understood();
  core::WireReader in(text.substr(1));
  Greeting greeting;
  greeting.size = in.number();
  greeting.rank = in.number();
  greeting.job = in.text();
  greeting.nonce = in.text();
  const std::string failure = in.text();
  if (!failure.empty()) greeting.failure = core::decode_error(failure);
  return greeting;
}

std::optional<ErrorRecord> failure_of(const std::function<std::string()>& step,
                                      std::uint32_t rank) {
  try {
    step();
    return std::nullopt;
  } catch (...) {
    return current_failure(rank);
  }
}

std::string answer_of(const std::function<std::string()>& step) {
  try {
    return blob_mark + blob_of(step);
  } catch (...) {
    return answer_of(current_failure(0));
  }
}

std::string answer_of(const ErrorRecord& failure) {
  return failure_mark + core::encode(failure);
}

ErrorRecord as_own(ErrorRecord failure) {
  failure.rank = -1;
  return failure;
}

std::string later(std::string_view cause) {
  return later_mark + std::string(cause);
}

bool is_failure(std::string_view answer) noexcept {
  return answer.starts_with(failure_mark);
}

void require_final(std::string_view text) {
  if (text.starts_with(later_mark)) throw TransportError(std::string(text.substr(1)));
  // A connection to a local port that has no listener yet may connect to itself: then this is our
  // own greeting.
  if (!text.starts_with(blob_mark) && !is_failure(text)) not_understood();
}

std::string open_answer(std::string_view answer) {
  require_final(answer);
  if (is_failure(answer)) raise(core::decode_error(answer.substr(1)));
  return std::string(answer.substr(1));
}

}  // namespace safeshuffle::comm
