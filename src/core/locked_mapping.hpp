// Parts of files mapped into memory. Linux only, like the rest of core.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace safeshuffle::core {

/// A range of a file, mapped for reading, with its pages locked in memory (mlock(2)): all of them
/// have been read from storage, and they stay until this is destroyed. So, unlike with other
/// mappings, a storage error cannot show as SIGBUS on access; a file that shrinks still can, see
/// FileLease.
class LockedMapping {
 public:
  /// The range, not empty, is within the file. Throws IoError with errno if it cannot be locked
  /// because of RLIMIT_MEMLOCK, or if storage fails; the kernel does not tell these apart.
  LockedMapping(int descriptor, std::uint64_t offset, std::size_t bytes);
  ~LockedMapping();
  LockedMapping(const LockedMapping&) = delete;
  LockedMapping& operator=(const LockedMapping&) = delete;

  std::span<const std::byte> bytes() const noexcept { return pages_.subspan(skip_); }

 private:
  void lock();

  const std::size_t skip_;  // what lies in the first page before the range
  std::span<std::byte> pages_;
};

}  // namespace safeshuffle::core
