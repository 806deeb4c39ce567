#include "safeshuffle/error.hpp"

#include <utility>

namespace safeshuffle {
namespace {

// Names come from files: whatever they hold, a message stays one line.
std::string printable(const std::string& name) {
  std::string text;
  for (const char c : name) {
    const bool control = (c >= 0 && c < ' ') || c == 0x7f;
    text += control ? '?' : c;
  }
  return text;
}

}  // namespace

std::string describe(const ErrorRecord& record) {
  std::string text;
  if (record.rank >= 0) text += "rank " + std::to_string(record.rank) + ": ";
  if (!record.file.empty()) text += printable(record.file) + ": ";
  if (!record.tensor.empty()) text += "tensor '" + printable(record.tensor) + "': ";
  if (record.offset) text += "byte " + std::to_string(*record.offset) + ": ";
  return text + record.cause;
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
  }
  throw Error(std::move(record));
}

}  // namespace safeshuffle
