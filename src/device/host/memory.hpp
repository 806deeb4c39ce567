// Page-aligned host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace safeshuffle::device {

/// Of x86-64, and of ARM64 with pages of 4 KiB.
inline constexpr std::uint64_t huge_page_bytes = std::uint64_t{2} << 20;

/// `bytes` > 0 of zeroed memory of its own mapping, aligned to huge pages and backed by them where
/// the system grants them. Pages are taken on first touch. Throws MemoryError.
std::shared_ptr<std::byte> allocate_pages(std::uint64_t bytes);

/// As allocate_pages, and written: the host of a virtual machine takes free memory back, so what
/// was not in use lately is slow to write for the first time. Throws MemoryError.
std::shared_ptr<std::byte> allocate_written_pages(std::uint64_t bytes);

/// Asks for huge pages where that memory, and the pages that it begins and ends in, have room for
/// them. Only a hint.
void advise_huge_pages(std::span<std::byte> memory) noexcept;

}  // namespace safeshuffle::device
