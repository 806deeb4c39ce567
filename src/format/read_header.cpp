#include <algorithm>
#include <array>
#include <span>

#include "core/posix_file.hpp"
#include "format/checkpoint.hpp"
#include "format/header.hpp"

namespace safeshuffle::format {

RawHeader read_header(const std::string& path) {
  const core::PosixFile file = core::PosixFile::open(path);
  const core::FileIdentity identity = file.identity();
  std::array<char, prefix_bytes> prefix{};
  const auto available = std::min<std::uint64_t>(prefix_bytes, identity.size);
  file.read(0, std::as_writable_bytes(std::span(prefix)).first(available));
  const std::uint64_t length = parse_header_length({prefix.data(), available}, identity.size, path);
  std::string json(length, '\0');
  file.read(prefix_bytes, std::as_writable_bytes(std::span(json)));
  return {std::move(json), identity.size, identity.modified_ns};
}

}  // namespace safeshuffle::format
