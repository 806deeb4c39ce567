#include "io/file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"
#include "core/file_identity.hpp"
#include "core/page.hpp"
#include "io/pieces.hpp"

namespace safeshuffle::io {
namespace {

std::string text(int code) {
  return std::generic_category().message(code);
}

void require_identity(const FileInfo& info, const core::FileIdentity& found) {
  const bool same_inode = info.inode == 0 || info.inode == found.inode;
  if (same_inode && found.size == info.size && found.modified_ns == info.modified_ns) return;
  throw IoError(ErrorRecord{.file = info.path, .cause = "file changed since its header was read"});
}

bool aligned(const std::byte* address) {
  return reinterpret_cast<std::uintptr_t>(address) % core::page_bytes == 0;
}

}  // namespace

File::File(const FileInfo& info, bool direct, const source::Source& source, PathRecorder& recorder)
    : info_(info),
      recorder_(recorder),
      buffered_(source.open(info.path, source::Access::cached)),
      direct_(direct ? open_directly(source) : nullptr),
      direct_works_(direct_ != nullptr) {
  require_identity(info_, buffered_->identity());
  if (direct_) require_identity(info_, direct_->identity());
}

std::unique_ptr<source::Handle> File::open_directly(const source::Source& source) try {
  return source.open(info_.path, source::Access::direct);
} catch (const IoError& error) {
  recorder_.fallback(info_.path, "open: " + text(error.record().code));
  return nullptr;
}

void File::read(std::uint64_t offset, std::span<std::byte> to) {
  const std::size_t done = direct_works_ ? read_direct(offset, to) : 0;
  recorder_.direct_read(info_.path, done);
  if (done == to.size()) return;
  source::read(*buffered_, info_.path, offset + done, to.subspan(done));
  recorder_.buffered_read(info_.path, to.size() - done);
  // Unless another reason has been recorded, which then takes precedence.
  if (direct_works_) {
    recorder_.fallback(info_.path, "a direct read returned fewer bytes than requested");
  }
}

/// Reads into the beginning of `to`; returns the number of bytes. The rest (after a refusal, or at
/// the end of the file) is read through the page cache, which also detects errors.
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
  const std::size_t whole = core::align_down(to.size(), core::page_bytes);
  if (offset % core::page_bytes != 0 || whole == 0) return read_within_block(offset, to);
  if (aligned(to.data())) return read_blocks(offset, to.first(whole));
  recorder_.fallback(info_.path, "destination not aligned");
  return 0;
}

/// One direct read; offset, length and address are aligned. Returns 0 also if it is refused.
std::size_t File::read_blocks(std::uint64_t offset, std::span<std::byte> to) try {
  return direct_->read_some(offset, to);
} catch (const IoError& error) {
  if (error.record().code != EINVAL) throw;
  direct_works_ = false;
  recorder_.fallback(info_.path, "read: " + text(EINVAL));
  return 0;
}

/// Reads the bytes of `to` that lie in the block of `offset` through a separate whole block: the
/// unaligned head or tail of a range.
std::size_t File::read_within_block(std::uint64_t offset, std::span<std::byte> to) {
  alignas(core::page_bytes) std::array<std::byte, core::page_bytes> block;
  const std::size_t skip = offset % core::page_bytes;
  const std::size_t count = read_blocks(offset - skip, block);
  if (count <= skip) return 0;
  const std::size_t bytes = std::min(count - skip, to.size());
  std::copy_n(block.begin() + skip, bytes, to.begin());
  return bytes;
}

void check_unchanged(const FileInfo& info, const source::Source& source) {
  require_identity(info, source.identify(info.path));
}

}  // namespace safeshuffle::io
