// Page-aligned host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace safeshuffle::device {

/// `bytes` > 0 of zeroed memory of its own mapping, aligned to 2 MiB, backed by huge pages where
/// the system grants them. Pages are taken on first touch. Throws MemoryError.
std::shared_ptr<std::byte> allocate_pages(std::uint64_t bytes);

}  // namespace safeshuffle::device
