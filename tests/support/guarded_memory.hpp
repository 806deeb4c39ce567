// Memory between two inaccessible pages.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>

namespace safeshuffle::testing {

/// Holds a copy of some bytes, `offset` < 16 bytes behind a 16-byte aligned address. Owns the
/// mapping.
class GuardedMemory {
 public:
  /// The page that the aligned 16 bytes with the first, or those with the last byte, adjoin.
  enum class Place { front, back };

  GuardedMemory(std::span<const std::byte> content, Place place, std::size_t offset = 0)
      : bytes_(mapped_bytes(content.size() + offset)) {
    void* const mapped = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
    memory_ = static_cast<std::byte*>(mapped);
    if (mprotect(memory_ + page(), bytes_ - 2 * page(), PROT_READ | PROT_WRITE) != 0) {
      munmap(memory_, bytes_);
      throw std::system_error(errno, std::generic_category(), "mprotect");
    }
    const std::size_t padded = (content.size() + offset + 15) / 16 * 16;
    begin_ =
        (place == Place::front ? memory_ + page() : memory_ + bytes_ - page() - padded) + offset;
    if (!content.empty()) std::memcpy(begin_, content.data(), content.size());
  }

  ~GuardedMemory() { munmap(memory_, bytes_); }

  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  const std::byte* data() const { return begin_; }

 private:
  static std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

  static std::size_t mapped_bytes(std::size_t bytes) {
    return (bytes / page() + 1) * page() + 2 * page();
  }

  std::size_t bytes_;
  std::byte* memory_ = nullptr;
  std::byte* begin_ = nullptr;
};

}  // namespace safeshuffle::testing
