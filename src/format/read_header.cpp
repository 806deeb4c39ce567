#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

#include "safeshuffle/error.hpp"

#include "core/posix_file.hpp"
#include "format/checkpoint.hpp"
#include "format/foreign_content.hpp"
#include "format/header.hpp"

namespace safeshuffle::format {
namespace {

/// A better cause than the one at hand, if the file shows that it is something else altogether.
[[noreturn]] void explain(const FormatError& error, const core::PosixFile& file,
                          std::uint64_t file_size) {
  std::array<char, 512> bytes{};
  const auto available = std::min<std::uint64_t>(bytes.size(), file_size);
  file.read(0, std::as_writable_bytes(std::span(bytes)).first(available));
  ErrorRecord record = error.record();
  const std::string what = not_safetensors({bytes.data(), available});
  if (!what.empty()) record.cause = what;
  throw FormatError(std::move(record));
}

std::uint64_t read_length(const core::PosixFile& file, std::uint64_t file_size,
                          const std::string& path) {
  std::array<char, prefix_bytes> prefix{};
  const auto available = std::min<std::uint64_t>(prefix_bytes, file_size);
  file.read(0, std::as_writable_bytes(std::span(prefix)).first(available));
  try {
    return parse_header_length({prefix.data(), available}, file_size, path);
  } catch (const FormatError& error) {
    explain(error, file, file_size);
  }
}

}  // namespace

RawHeader read_header(const std::string& path) {
  const core::PosixFile file = core::PosixFile::open(path);
  const core::FileIdentity identity = file.identity();
  const std::uint64_t length = read_length(file, identity.size, path);
  std::string json(length, '\0');
  file.read(prefix_bytes, std::as_writable_bytes(std::span(json)));
  return {std::move(json), identity.size, identity.modified_ns};
}

}  // namespace safeshuffle::format
