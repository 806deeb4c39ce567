#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "safeshuffle/error.hpp"

#include "format/foreign_content.hpp"
#include "format/header.hpp"
#include "source/cached.hpp"
#include "source/discover.hpp"

namespace safeshuffle::source {
namespace {

/// The first bytes of an object, at most `most`.
std::string beginning_of(const Handle& handle, const std::string& path, std::uint64_t most) {
  std::string bytes(std::min(most, handle.identity().size), '\0');
  read(handle, path, 0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

/// A better cause than the given one, if the content shows that the file is something else.
[[noreturn]] void explain(const FormatError& error, const Handle& handle, const std::string& path) {
  constexpr std::uint64_t enough = 512;
  const std::string what = format::not_safetensors(beginning_of(handle, path, enough));
  ErrorRecord record = error.record();
  if (!what.empty()) record.cause = what;
  throw FormatError(std::move(record));
}

std::uint64_t read_length(const Handle& handle, const std::string& path) {
  const std::string prefix = beginning_of(handle, path, format::prefix_bytes);
  try {
    return format::parse_header_length(prefix, handle.identity().size, path);
  } catch (const FormatError& error) {
    explain(error, handle, path);
  }
}

}  // namespace

format::RawHeader read_header(const Source& source, const std::string& path) {
  const auto handle = source.open(path, Access::cached);
  std::string json(read_length(*handle, path), '\0');
  read(*handle, path, format::prefix_bytes, std::as_writable_bytes(std::span(json)));
  const core::FileIdentity& identity = handle->identity();
  return {std::move(json), identity.size, identity.modified_ns, identity.inode,
          cached_share(*handle).value_or(0)};
}

}  // namespace safeshuffle::source
