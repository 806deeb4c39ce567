#include "device/host/memory.hpp"

#include <cerrno>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <system_error>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"
#include "core/page.hpp"

namespace safeshuffle::device {
namespace {

[[noreturn]] void fail(std::uint64_t bytes, int error) {
  throw MemoryError(
      ErrorRecord{.code = error,
                  .cause = "cannot allocate " + std::to_string(bytes) +
                           " bytes of host memory: " + std::generic_category().message(error)});
}

}  // namespace

std::shared_ptr<std::byte> allocate_pages(std::uint64_t bytes) {
  // Extra space to align within the mapping; untouched pages take no memory.
  const auto length = core::checked_add(bytes, huge_page_bytes);
  if (!length) fail(bytes, ENOMEM);
  void* mapping =
      mmap(nullptr, *length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) fail(bytes, errno);
  const auto skip = -reinterpret_cast<std::uintptr_t>(mapping) & (huge_page_bytes - 1);
  std::byte* start = static_cast<std::byte*>(mapping) + skip;
  advise_huge_pages({start, bytes});
  return {start, [mapping, length = *length](std::byte*) { munmap(mapping, length); }};
}

std::shared_ptr<std::byte> allocate_written_pages(std::uint64_t bytes) {
  auto memory = allocate_pages(bytes);
  std::memset(memory.get(), 1, bytes);
  return memory;
}

// First touch is several times faster with huge pages. The first and the last page are included,
// lest each tensor become several mappings, of which a process may have only so many.
void advise_huge_pages(std::span<std::byte> memory) noexcept {
  if (memory.size() < huge_page_bytes) return;
  const std::size_t skip = reinterpret_cast<std::uintptr_t>(memory.data()) % core::page_bytes;
  madvise(memory.data() - skip, memory.size() + skip, MADV_HUGEPAGE);
}

}  // namespace safeshuffle::device
