// What the system's page cache holds of an open file. Linux only, like the rest of core.
#pragma once

#include <cstdint>
#include <optional>

namespace safeshuffle::core {

/// How many of `bytes` bytes from `offset` on are in the page cache, counted in whole pages but at
/// most `bytes`; empty if the system does not tell, for example because this process neither owns
/// the file nor may write to it.
std::optional<std::uint64_t> cached_bytes(int descriptor, std::uint64_t offset,
                                          std::uint64_t bytes);

/// The same by mincore(2), for kernels before 6.5, which have no cachestat(2), and for overlayfs,
/// where that counts nothing.
std::optional<std::uint64_t> cached_bytes_by_mincore(int descriptor, std::uint64_t offset,
                                                     std::uint64_t bytes);

/// An estimate of the same, for when the system does not tell: one byte for each MiB, but at most
/// four, is read at a random place unless that would have to wait for storage (RWF_NOWAIT). As soon
/// as more than a quarter would, no others are. The system may bring the pages of these into the
/// page cache, and from quick storage before the read ends, which then counts them as cached. Empty
/// if the filesystem cannot read without waiting.
std::optional<std::uint64_t> sampled_cached_bytes(int descriptor, std::uint64_t offset,
                                                  std::uint64_t bytes);

/// The system caches up to so many bytes as one block, which it drops as a whole or not at all; it
/// begins at a multiple of its size.
inline constexpr std::uint64_t most_cached_block = std::uint64_t{2} << 20;

/// Asks the system to drop the pages that lie entirely within `bytes` bytes from `offset` on. It
/// keeps those that are dirty (but starts to write them), mapped by a process, locked, or cached in
/// one large block with pages outside of the range, and those of a filesystem without storage
/// behind it; `cached_bytes` tells what remains.
void drop_cached(int descriptor, std::uint64_t offset, std::uint64_t bytes) noexcept;

/// Tells the system not to read ahead of what is read through this descriptor.
void stop_readahead(int descriptor) noexcept;

/// Whether the page cache alone decides how fast a file is read: not on a network, in another
/// process (FUSE), or where the filesystem has a cache of its own. True if that is not known.
bool is_local(int descriptor) noexcept;

/// Whether some of these bytes, which are within the file, are in a hole: they read as zeros, but
/// are not on storage. False also if that cannot be determined.
bool has_hole(int descriptor, std::uint64_t offset, std::uint64_t bytes) noexcept;

}  // namespace safeshuffle::core
