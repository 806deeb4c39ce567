#include "io/file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <system_error>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"
#include "core/file_identity.hpp"
#include "core/system_call.hpp"
#include "io/pieces.hpp"

namespace safeshuffle::io {
namespace {

std::string text(int code) {
  return std::generic_category().message(code);
}

void require_identity(const FileInfo& info, const core::FileIdentity& found) {
  if (found == core::FileIdentity{info.size, info.modified_ns}) return;
  throw IoError(ErrorRecord{.file = info.path, .cause = "file changed since its header was read"});
}

bool aligned(const std::byte* address) {
  return reinterpret_cast<std::uintptr_t>(address) % direct_alignment == 0;
}

}  // namespace

File::File(const FileInfo& info, bool direct, Syscalls& syscalls, PathRecorder& recorder)
    : info_(info),
      syscalls_(syscalls),
      recorder_(recorder),
      buffered_(open(0)),
      direct_(direct && buffered_ ? open(O_DIRECT) : core::Descriptor()),
      direct_works_(bool{direct_}) {
  if (!buffered_) core::raise_errno(errno, info.path, "cannot open");
  if (direct && !direct_) recorder_.fallback(info_.path, "open: " + text(errno));
  require_identity(info_, core::identify(buffered_.value(), info_.path));
  if (direct_) require_identity(info_, core::identify(direct_.value(), info_.path));
}

core::Descriptor File::open(int extra_flags) {
  return core::Descriptor(core::uninterrupted(
      [&] { return syscalls_.open(info_.path, O_RDONLY | O_CLOEXEC | extra_flags); }));
}

void File::read(std::uint64_t offset, std::span<std::byte> to) {
  const std::size_t done = direct_works_ ? read_direct(offset, to) : 0;
  recorder_.direct_read(info_.path, done);
  if (done == to.size()) return;
  read_buffered(offset + done, to.subspan(done));
  recorder_.buffered_read(info_.path, to.size() - done);
  // Unless something else is known by now, which is then the reason that counts.
  if (direct_works_) recorder_.fallback(info_.path, "a direct read stopped short");
}

/// Reads from the start of `to` on; returns the number of bytes. What is left (after a refusal, or
/// at the end of the file) is for `read_buffered` to read or to judge.
std::size_t File::read_direct(std::uint64_t offset, std::span<std::byte> to) {
  std::size_t done = 0;
  while (done < to.size()) {
    const std::size_t count = read_some_directly(offset + done, to.subspan(done));
    if (count == 0) break;
    done += count;
  }
  return done;
}

/// Returns 0 at the end of the file, and where direct reads are not possible.
std::size_t File::read_some_directly(std::uint64_t offset, std::span<std::byte> to) {
  const std::size_t whole = core::align_down(to.size(), direct_alignment);
  if (offset % direct_alignment != 0 || whole == 0) return read_within_block(offset, to);
  if (aligned(to.data())) return read_blocks(offset, to.first(whole));
  recorder_.fallback(info_.path, "destination not aligned");
  return 0;
}

/// One direct read; offset, length and address are aligned. Returns 0 also if it is refused.
std::size_t File::read_blocks(std::uint64_t offset, std::span<std::byte> to) {
  const ssize_t count = pread(direct_, to, offset);
  if (count >= 0) return static_cast<std::size_t>(count);
  if (errno != EINVAL) core::raise_errno(errno, info_.path, "cannot read", offset);
  direct_works_ = false;
  recorder_.fallback(info_.path, "read: " + text(EINVAL));
  return 0;
}

/// The bytes of `to` that lie in the block of `offset`, by way of a whole block: the unaligned head
/// or tail of a range.
std::size_t File::read_within_block(std::uint64_t offset, std::span<std::byte> to) {
  alignas(direct_alignment) std::array<std::byte, direct_alignment> block;
  const std::size_t skip = offset % direct_alignment;
  const std::size_t count = read_blocks(offset - skip, block);
  if (count <= skip) return 0;
  const std::size_t bytes = std::min(count - skip, to.size());
  std::copy_n(block.begin() + skip, bytes, to.begin());
  return bytes;
}

void File::read_buffered(std::uint64_t offset, std::span<std::byte> to) {
  for (std::size_t done = 0; done < to.size();) {
    const ssize_t count = pread(buffered_, to.subspan(done), offset + done);
    if (count < 0) core::raise_errno(errno, info_.path, "cannot read", offset + done);
    if (count == 0) core::raise_ended_early(info_.path, offset + done);
    done += static_cast<std::size_t>(count);
  }
}

ssize_t File::pread(const core::Descriptor& descriptor, std::span<std::byte> to,
                    std::uint64_t offset) {
  return core::uninterrupted([&] {
    return syscalls_.pread(descriptor.value(), to.data(), to.size(), static_cast<off_t>(offset));
  });
}

void check_unchanged(const FileInfo& info) {
  require_identity(info, core::identify(info.path));
}

}  // namespace safeshuffle::io
