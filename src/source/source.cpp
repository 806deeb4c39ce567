#include "source/source.hpp"

#include <cerrno>

#include "core/system_call.hpp"

namespace safeshuffle::source {

void read(const Handle& handle, const std::string& path, std::uint64_t offset,
          std::span<std::byte> to) {
  while (!to.empty()) {
    const std::size_t count = handle.read_some(offset, to);
    if (count == 0) core::raise_ended_early(path, offset);
    to = to.subspan(count);
    offset += count;
  }
}

std::string read_text(const Source& source, const std::string& path, std::uint64_t limit) {
  const auto handle = source.open(path, Access::cached);
  const std::uint64_t size = handle->identity().size;
  if (size > limit) core::raise_errno(EFBIG, path, "cannot read as text");
  std::string text(size, '\0');
  read(*handle, path, 0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace safeshuffle::source
