#include "comm/agreement.hpp"

#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>
#include <type_traits>
#include <utility>

namespace safeshuffle::comm {
namespace {

template <typename Value>
void put(std::string& bytes, Value value) {
  static_assert(std::is_trivially_copyable_v<Value>);
  const std::size_t end = bytes.size();
  bytes.resize(end + sizeof value);
  std::memcpy(bytes.data() + end, &value, sizeof value);
}

void put_text(std::string& bytes, std::string_view text) {
  put(bytes, std::uint64_t{text.size()});
  bytes += text;
}

[[noreturn]] void not_a_record() {
  throw TransportError("a peer sent an error record that cannot be decoded");
}

/// Takes values off the front of bytes that are not trusted.
class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : bytes_(bytes) {}

  template <typename Value>
  Value take() {
    Value value{};
    std::memcpy(&value, take_bytes(sizeof value).data(), sizeof value);
    return value;
  }

  std::string take_text() { return std::string(take_bytes(take<std::uint64_t>())); }

  bool at_end() const noexcept { return bytes_.empty(); }

 private:
  std::string_view take_bytes(std::uint64_t count) {
    if (count > bytes_.size()) not_a_record();
    const std::string_view front = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return front;
  }

  std::string_view bytes_;
};

ErrorKind checked_kind(std::uint8_t value) {
  if (value < std::uint8_t(ErrorKind::config) || value > std::uint8_t(ErrorKind::fallback)) {
    not_a_record();
  }
  return static_cast<ErrorKind>(value);
}

ErrorRecord plain_record(ErrorKind kind, std::int32_t code, std::string cause) {
  return {.kind = kind,
          .code = code,
          .file = {},
          .tensor = {},
          .offset = {},
          .cause = std::move(cause)};
}

// The first byte of what a rank contributes.
constexpr char succeeded = '+';
constexpr char failed = '-';

std::string contribution(std::string_view mine, const std::optional<ErrorRecord>& error) {
  return error ? failed + encode(*error) : succeeded + std::string(mine);
}

[[noreturn]] void raise_from(std::size_t rank, std::string_view encoded) {
  ErrorRecord record = decode_error(encoded);
  record.rank = static_cast<std::int32_t>(rank);
  raise(std::move(record));
}

}  // namespace

std::string encode(const ErrorRecord& record) {
  std::string bytes;
  put(bytes, static_cast<std::uint8_t>(record.kind));
  put(bytes, record.code);
  put(bytes, record.rank);
  put(bytes, std::uint8_t{record.offset.has_value()});
  put(bytes, record.offset.value_or(0));
  put_text(bytes, record.file);
  put_text(bytes, record.tensor);
  put_text(bytes, record.cause);
  return bytes;
}

ErrorRecord decode_error(std::string_view bytes) {
  Decoder decoder(bytes);
  ErrorRecord record;
  record.kind = checked_kind(decoder.take<std::uint8_t>());
  record.code = decoder.take<std::int32_t>();
  record.rank = decoder.take<std::int32_t>();
  const bool has_offset = decoder.take<std::uint8_t>() != 0;
  const auto offset = decoder.take<std::uint64_t>();
  if (has_offset) record.offset = offset;
  record.file = decoder.take_text();
  record.tensor = decoder.take_text();
  record.cause = decoder.take_text();
  if (!decoder.at_end()) not_a_record();
  return record;
}

ErrorRecord current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error.record();
  } catch (const std::bad_alloc&) {
    return plain_record(ErrorKind::memory, 0, "out of memory");
  } catch (const std::filesystem::filesystem_error& error) {
    ErrorRecord record = plain_record(ErrorKind::io, error.code().value(), error.code().message());
    record.file = error.path1().string();
    return record;
  } catch (const std::system_error& error) {
    return plain_record(ErrorKind::io, error.code().value(), error.what());
  } catch (const std::exception& error) {
    return plain_record(ErrorKind::config, 0, error.what());
  } catch (...) {
    return plain_record(ErrorKind::config, 0, "unknown exception");
  }
}

std::vector<std::string> agree(Transport& transport, std::string_view mine,
                               const std::optional<ErrorRecord>& error, core::Deadline deadline) {
  std::vector<std::string> all = transport.all_gather(contribution(mine, error), deadline);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) not_a_record();
    if (all[rank].front() == failed) raise_from(rank, std::string_view(all[rank]).substr(1));
  }
  for (std::string& text : all) text.erase(0, 1);
  return all;
}

std::vector<std::string> agree_on(Transport& transport, core::Deadline deadline,
                                  const std::function<std::string()>& step) {
  std::string mine;
  std::optional<ErrorRecord> error;
  try {
    mine = step();
  } catch (...) {
    error = current_error();
  }
  deadline.restart();  // it bounds the waiting for peers, not the step
  return agree(transport, mine, error, deadline);
}

}  // namespace safeshuffle::comm
