#include "safeshuffle/error.hpp"

#include <utility>

#include "core/text.hpp"

namespace safeshuffle {
namespace {

// Longer than any real tensor's name.
constexpr std::size_t name_limit = 300;

}  // namespace

std::string describe(const ErrorRecord& record) {
  std::string text;
  if (record.rank >= 0) text += "rank " + std::to_string(record.rank) + ": ";
  if (!record.file.empty()) text += record.file + ": ";
  if (!record.tensor.empty()) {
    text += "tensor '" + core::shortened(record.tensor, name_limit) + "': ";
  }
  if (record.offset) text += "byte " + std::to_string(*record.offset) + ": ";
  // Names and causes quote files; whatever these contain, a message stays one line.
  return core::printable(text + record.cause);
}

Error::Error(ErrorRecord record)
    : std::runtime_error(describe(record)), record_(std::move(record)) {}

void raise(ErrorRecord record) {
  switch (record.kind) {
    case ErrorKind::internal:
      throw InternalError(std::move(record));
    case ErrorKind::config:
      throw ConfigError(std::move(record));
    case ErrorKind::io:
      throw IoError(std::move(record));
    case ErrorKind::format:
      throw FormatError(std::move(record));
    case ErrorKind::plan:
      throw PlanError(std::move(record));
    case ErrorKind::transport:
      throw TransportError(std::move(record));
    case ErrorKind::memory:
      throw MemoryError(std::move(record));
    case ErrorKind::verification:
      throw VerificationError(std::move(record));
    case ErrorKind::timeout:
      throw TimeoutError(std::move(record));
    case ErrorKind::fallback:
      throw FallbackError(std::move(record));
    case ErrorKind::cancelled:
      throw CancelledError(std::move(record));
  }
  throw Error(std::move(record));
}

}  // namespace safeshuffle
