#include "io/file.hpp"

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

bool aligned(const std::byte* address, std::uint64_t offset) {
  // The bits of an address are what direct I/O constrains.
  return (reinterpret_cast<std::uintptr_t>(address) | offset) % direct_alignment == 0;
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
  read_buffered(offset + done, to.subspan(done));
}

/// Reads what can be read directly, from the start of `to`; returns the number of bytes. What is
/// left (a short end, a refusal, the end of the file) is for `read_buffered` to read or to judge.
std::size_t File::read_direct(std::uint64_t offset, std::span<std::byte> to) {
  const std::size_t goal = core::align_down(to.size(), direct_alignment);
  if (goal == 0) return 0;
  if (!aligned(to.data(), offset)) {
    if (offset % direct_alignment == 0) recorder_.fallback(info_.path, "destination not aligned");
    return 0;
  }
  std::size_t done = 0;
  while (done < goal && done % direct_alignment == 0) {
    const ssize_t count = pread(direct_, to.subspan(done, goal - done), offset + done);
    if (count < 0 && errno == EINVAL) {
      direct_works_ = false;
      recorder_.fallback(info_.path, "read: " + text(EINVAL));
      return done;
    }
    if (count < 0) core::raise_errno(errno, info_.path, "cannot read", offset + done);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
    recorder_.direct_read();
  }
  return done;
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
