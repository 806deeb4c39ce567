#include "core/page_cache.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <limits>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <vector>

#include "core/arithmetic.hpp"
#include "core/defaults.hpp"
#include "core/system_call.hpp"

namespace safeshuffle::core {
namespace {

constexpr std::uint64_t most_mapped = std::uint64_t{1} << 30;  // at a time

std::uint64_t system_page() {
  return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// From linux/magic.h and the sources of filesystems outside of the kernel.
constexpr std::uint32_t overlayfs = 0x794c7630;
constexpr std::array<std::uint32_t, 13> not_local{
    0x00006969,  // NFS
    0xff534d42,  // CIFS
    0xfe534d42,  // SMB 2 and 3
    0x0000517b,  // SMB, before Linux 5.15
    0x65735546,  // FUSE, virtiofs too
    0x01021997,  // 9P
    0x00c36400,  // Ceph
    0x5346414f,  // AFS
    0x0bd00bd0,  // Lustre
    0x47504653,  // GPFS
    0x19830326,  // BeeGFS
    0xaad7aaea,  // PanFS
    0x2fc12fc1,  // ZFS, which caches in the ARC
};

/// 0 if unknown.
std::uint32_t filesystem_type(int descriptor) noexcept {
  struct statfs status {};
  return ::fstatfs(descriptor, &status) == 0 ? static_cast<std::uint32_t>(status.f_type) : 0;
}

// From linux/mman.h, which older systems have without these; the number is the same on all
// architectures.
#ifdef SYS_cachestat
constexpr long cachestat_call = SYS_cachestat;
#else
constexpr long cachestat_call = 451;
#endif

struct CachestatRange {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct Cachestat {
  std::uint64_t cached = 0;  // this and what follows in pages
  std::uint64_t dirty = 0;
  std::uint64_t writeback = 0;
  std::uint64_t evicted = 0;
  std::uint64_t recently_evicted = 0;
};

std::optional<std::uint64_t> count_by_cachestat(int descriptor, CachestatRange range) {
  Cachestat stat;
  if (::syscall(cachestat_call, descriptor, &range, &stat, 0U) != 0) return {};
  return stat.cached;
}

// Where a range begins within a large block of cached pages, the kernel (6.18, for one) misses
// pages behind that block if the scheduler interrupts the call. So the count begins with the block,
// and what lies before the range is subtracted.
std::optional<std::uint64_t> pages_by_cachestat(int descriptor, CachestatRange range) {
  const std::uint64_t begin = align_down(range.offset, most_cached_block);
  const std::uint64_t before = align_down(range.offset - begin, system_page());
  const auto pages = count_by_cachestat(descriptor, {begin, range.offset - begin + range.bytes});
  if (!pages) return {};
  // An overlay, as in containers, has no pages of its own; a mapping shows those of the file below.
  if (*pages == 0 && filesystem_type(descriptor) == overlayfs) return {};
  if (before == 0) return pages;  // no bytes would mean all up to the end
  const auto others = count_by_cachestat(descriptor, {begin, before});
  if (!others) return {};
  return *pages - std::min(*pages, *others);
}

/// Whether mincore tells the truth: of a file that the caller neither owns nor may write to, it
/// says that all pages are cached.
bool may_ask_mincore(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return false;
  const std::string file = "/proc/self/fd/" + std::to_string(descriptor);
  return status.st_uid == ::geteuid() || ::faccessat(AT_FDCWD, file.c_str(), W_OK, AT_EACCESS) == 0;
}

/// `begin` is a multiple of a page.
std::optional<std::uint64_t> pages_by_mincore(int descriptor, std::uint64_t begin,
                                              std::uint64_t bytes) {
  std::vector<unsigned char> pages(ceil_div(bytes, system_page()));
  void* mapping =
      ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, static_cast<off_t>(begin));
  if (mapping == MAP_FAILED) return {};
  const int code = ::mincore(mapping, bytes, pages.data());
  ::munmap(mapping, bytes);
  if (code != 0) return {};
  return static_cast<std::uint64_t>(
      std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; }));
}

/// Whether the byte can be read without waiting for storage; empty if the filesystem cannot tell.
std::optional<bool> reads_at_once(int descriptor, std::uint64_t offset) {
  std::byte byte{};
  const iovec to{&byte, 1};
  const auto read = uninterrupted(
      [&] { return ::preadv2(descriptor, &to, 1, static_cast<off_t>(offset), RWF_NOWAIT); });
  if (read != -1) return read == 1;
  if (errno == EAGAIN) return false;
  return {};
}

/// Whether no file extends beyond the range.
bool is_in_file_range(std::uint64_t offset, std::uint64_t bytes) {
  constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  return in_bounds(offset, bytes, largest);
}

}  // namespace

std::optional<std::uint64_t> cached_bytes(int descriptor, std::uint64_t offset,
                                          std::uint64_t bytes) {
  if (bytes == 0) return 0;  // which cachestat takes for all up to the end
  const auto pages = pages_by_cachestat(descriptor, {offset, bytes});
  if (!pages) return cached_bytes_by_mincore(descriptor, offset, bytes);
  return std::min(*pages * system_page(), bytes);
}

std::optional<std::uint64_t> cached_bytes_by_mincore(int descriptor, std::uint64_t offset,
                                                     std::uint64_t bytes) {
  if (!is_in_file_range(offset, bytes) || !may_ask_mincore(descriptor)) return {};
  std::uint64_t pages = 0;
  for (std::uint64_t begin = align_down(offset, system_page()); begin < offset + bytes;) {
    const std::uint64_t part = std::min(offset + bytes - begin, most_mapped);
    const auto found = pages_by_mincore(descriptor, begin, part);
    if (!found) return {};
    pages += *found;
    begin += part;
  }
  return std::min(pages * system_page(), bytes);
}

// At random places: what a sample reads is cached for the next one.
std::optional<std::uint64_t> sampled_cached_bytes(int descriptor, std::uint64_t offset,
                                                  std::uint64_t bytes) {
  constexpr std::uint64_t most_places = 4;
  if (!is_in_file_range(offset, bytes)) return {};
  if (bytes == 0) return 0;
  std::array<std::uint64_t, most_places> random{};
  if (::getentropy(random.data(), sizeof(random)) != 0) return {};
  const std::uint64_t places = std::min(ceil_div(bytes, mebibyte), most_places);
  const std::uint64_t part = bytes / places;
  std::uint64_t missing = 0;
  for (std::uint64_t i = 0; i < places && missing <= places / 4; ++i) {
    const auto at_once = reads_at_once(descriptor, offset + i * part + random[i] % part);
    if (!at_once) return {};
    if (!*at_once) ++missing;
  }
  return bytes - missing * part;
}

void drop_cached(int descriptor, std::uint64_t offset, std::uint64_t bytes) noexcept {
  // No bytes would mean all up to the end.
  if (bytes == 0 || !is_in_file_range(offset, bytes)) return;
  static_cast<void>(::posix_fadvise(descriptor, static_cast<off_t>(offset),
                                    static_cast<off_t>(bytes), POSIX_FADV_DONTNEED));
}

void stop_readahead(int descriptor) noexcept {
  static_cast<void>(::posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM));
}

bool is_local(int descriptor) noexcept {
  return std::ranges::find(not_local, filesystem_type(descriptor)) == not_local.end();
}

bool has_hole(int descriptor, std::uint64_t offset, std::uint64_t bytes) noexcept {
  const off_t hole = ::lseek(descriptor, static_cast<off_t>(offset), SEEK_HOLE);
  return hole >= 0 && static_cast<std::uint64_t>(hole) < offset + bytes;
}

}  // namespace safeshuffle::core
