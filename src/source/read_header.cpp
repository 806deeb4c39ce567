#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "safeshuffle/error.hpp"

#include "core/page.hpp"
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

std::uint64_t header_length(std::string_view beginning, const Handle& handle,
                            const std::string& path) {
  try {
    return format::parse_header_length(beginning.substr(0, format::prefix_bytes),
                                       handle.identity().size, path);
  } catch (const FormatError& error) {
    explain(error, handle, path);
  }
}

}  // namespace

format::RawHeader read_header(const Source& source, const std::string& path) {
  const auto handle = source.open(path, Access::cached);
  handle->stop_readahead();  // the tensors behind it may be read directly, or by another rank
  const auto cached = likely_cached_share(*handle);  // before reading changes it
  // With the length, all of a short header: small files are many.
  std::string json = beginning_of(*handle, path, core::page_bytes);
  const std::uint64_t length = header_length(json, *handle, path);
  const std::size_t known = std::min(json.size() - format::prefix_bytes, length);
  json.erase(0, format::prefix_bytes).resize(length);
  read(*handle, path, format::prefix_bytes + known,
       std::as_writable_bytes(std::span(json)).subspan(known));
  const core::FileIdentity& identity = handle->identity();
  return {std::move(json), identity.size, identity.modified_ns, identity.inode, cached};
}

}  // namespace safeshuffle::source
