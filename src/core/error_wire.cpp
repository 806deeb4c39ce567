#include "core/error_wire.hpp"

#include <cstdint>
#include <exception>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

namespace safeshuffle::core {
namespace {

ErrorRecord plain_record(ErrorKind kind, std::int32_t code, std::string cause) {
  return {.kind = kind, .code = code, .cause = std::move(cause)};
}

}  // namespace

std::string encode(const ErrorRecord& record) {
  return to_wire(record);
}

ErrorRecord decode_error(std::string_view bytes) {
  WireReader in(bytes);
  ErrorRecord record;
  get(in, record);
  if (!in.at_end() || record.kind < ErrorKind::internal || record.kind > ErrorKind::cancelled) {
    throw TransportError("a peer sent an error record that cannot be decoded");
  }
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
