#include "comm/agreement.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "core/deadline.hpp"
#include "core/wire.hpp"

namespace safeshuffle::comm {
namespace {

[[noreturn]] void not_a_record() {
  throw TransportError("a peer sent an error record that cannot be decoded");
}

ErrorKind checked_kind(std::uint64_t value) {
  if (value < std::uint64_t(ErrorKind::internal) || value > std::uint64_t(ErrorKind::fallback)) {
    not_a_record();
  }
  return static_cast<ErrorKind>(value);
}

ErrorRecord plain_record(ErrorKind kind, std::int32_t code, std::string cause) {
  return {.kind = kind, .code = code, .cause = std::move(cause)};
}

// The first byte of what a rank contributes.
constexpr char succeeded = '+';
constexpr char failed = '-';
constexpr char busy = '~';

std::string contribution(std::string_view mine, const std::optional<ErrorRecord>& error) {
  return error ? failed + encode(*error) : succeeded + std::string(mine);
}

[[noreturn]] void raise_from(std::size_t rank, std::string_view encoded) {
  ErrorRecord record = decode_error(encoded);
  record.rank = static_cast<std::int32_t>(rank);
  raise(std::move(record));
}

// One round: what all ranks contribute, unless one failed.
std::vector<std::string> gather(Transport& transport, std::string_view mine,
                                std::chrono::milliseconds timeout) {
  std::vector<std::string> all = transport.all_gather(mine, core::Deadline(timeout));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) not_a_record();
    if (all[rank].front() == failed) raise_from(rank, std::string_view(all[rank]).substr(1));
  }
  return all;
}

bool is_busy(const std::string& contributed) {
  return contributed.front() == busy;
}

}  // namespace

std::string encode(const ErrorRecord& record) {
  core::WireWriter out;
  out.put(static_cast<std::uint64_t>(record.kind)).put(static_cast<std::uint64_t>(record.code));
  out.put(static_cast<std::uint64_t>(record.rank)).put(std::uint64_t{record.offset.has_value()});
  out.put(record.offset.value_or(0)).put(record.file).put(record.tensor).put(record.cause);
  return out.take();
}

ErrorRecord decode_error(std::string_view bytes) {
  core::WireReader in(bytes);
  ErrorRecord record;
  record.kind = checked_kind(in.number());
  record.code = static_cast<std::int32_t>(in.number());
  record.rank = static_cast<std::int32_t>(in.number());
  const bool has_offset = in.number() != 0;
  const std::uint64_t offset = in.number();
  if (has_offset) record.offset = offset;
  record.file = in.text();
  record.tensor = in.text();
  record.cause = in.text();
  if (!in.at_end()) not_a_record();
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
    return plain_record(ErrorKind::internal, 0, error.what());
  } catch (...) {
    return plain_record(ErrorKind::internal, 0, "unknown exception");
  }
}

std::vector<std::string> agree(Transport& transport, std::string_view mine,
                               const std::optional<ErrorRecord>& error,
                               std::chrono::milliseconds timeout) {
  const std::string contributed = contribution(mine, error);
  std::vector<std::string> all;
  do {
    all = gather(transport, contributed, timeout);
  } while (std::any_of(all.begin(), all.end(), is_busy));
  for (std::string& text : all) text.erase(0, 1);
  return all;
}

std::vector<std::string> agree_on(Transport& transport, std::chrono::milliseconds timeout,
                                  const std::function<std::string()>& step) {
  return agree_with_heartbeat(transport, timeout, [&step](const Heartbeat&) { return step(); });
}

std::vector<std::string> agree_with_heartbeat(
    Transport& transport, std::chrono::milliseconds timeout,
    const std::function<std::string(const Heartbeat&)>& step) {
  std::string mine;
  std::optional<ErrorRecord> error;
  bool in_round = false;
  core::Deadline next(timeout / 4);
  const Heartbeat beat = [&] {
    if (!next.expired()) return;
    in_round = true;
    gather(transport, {&busy, 1}, timeout);
    in_round = false;
    next.restart();
  };
  try {
    mine = step(beat);
  } catch (...) {
    if (in_round) throw;  // all ranks know already
    error = current_error();
  }
  return agree(transport, mine, error, timeout);
}

}  // namespace safeshuffle::comm
