#include "core/error_wire.hpp"

#include <cstdint>
#include <exception>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "core/wire.hpp"

namespace safeshuffle::core {
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

}  // namespace safeshuffle::core
