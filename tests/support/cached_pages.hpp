// What the page cache has of files, for tests on the filesystem of the temporary directory.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"
#include "core/deadline.hpp"
#include "core/page_cache.hpp"
#include "core/posix_file.hpp"

namespace safeshuffle::testing {

/// Bytes of a file in the page cache.
inline std::uint64_t cached_bytes_of(const std::string& path) {
  const core::PosixFile file = core::PosixFile::open(path);
  return core::cached_bytes(file.descriptor(), 0, file.identity().size).value_or(0);
}

/// Returns whether nothing of the file is left in the page cache: some filesystems keep all.
inline bool make_cold(const std::string& path) {
  const core::PosixFile file = core::PosixFile::open(path);
  file.sync();
  core::drop_cached(file.descriptor(), 0, file.identity().size);
  return core::cached_bytes(file.descriptor(), 0, file.identity().size) == 0;
}

/// Whether `holds` is true of a cold file, of which it may read. Tried again for some seconds: a
/// read without waiting asks for what it does not find, and storage can be quick enough for it
/// then.
inline bool holds_when_cold(const std::string& path, const std::function<bool()>& holds) {
  const core::Deadline deadline(std::chrono::seconds(20));
  while (!(make_cold(path) && holds())) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

/// Reads a range into the page cache, and nothing ahead of it.
inline void make_warm(const std::string& path, std::uint64_t offset, std::uint64_t bytes) {
  const core::PosixFile file = core::PosixFile::open(path);
  core::stop_readahead(file.descriptor());
  std::vector<std::byte> buffer(bytes);
  file.read(offset, buffer);
}

/// A range, not empty, that stays in the page cache: some systems take pages away after a moment,
/// even if memory is plentiful, but hardly any that a process has mapped. Those cannot be dropped.
class WarmRange {
 public:
  WarmRange(const std::string& path, std::uint64_t offset, std::uint64_t bytes) {
    make_warm(path, offset, bytes);
    const core::PosixFile file = core::PosixFile::open(path);
    core::stop_readahead(file.descriptor());
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t begin = core::align_down(offset, page);
    bytes_ = offset + bytes - begin;
    memory_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED | MAP_POPULATE, file.descriptor(),
                     static_cast<off_t>(begin));
    if (memory_ == MAP_FAILED) throw IoError("cannot map " + path);
  }
  ~WarmRange() { ::munmap(memory_, bytes_); }
  WarmRange(const WarmRange&) = delete;
  WarmRange& operator=(const WarmRange&) = delete;

 private:
  void* memory_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace safeshuffle::testing
