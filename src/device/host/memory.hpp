// Page-aligned host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace safeshuffle::device {

/// Of x86-64, and of ARM64 with pages of 4 KiB.
inline constexpr std::uint64_t huge_page_bytes = std::uint64_t{2} << 20;

/// `bytes` > 0 of zeroed memory of its own mapping, aligned to huge pages and backed by them where
/// the system grants them. Pages are taken on first touch. Throws MemoryError.
std::shared_ptr<std::byte> allocate_pages(std::uint64_t bytes);

/// Writes that much memory and gives it back, so that what is allocated next is at hand: the host
/// of a virtual machine takes free memory back. Throws MemoryError.
void warm_up_pages(std::uint64_t bytes);

}  // namespace safeshuffle::device
