// Ranges of files that are mapped instead of read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/file_lease.hpp"
#include "core/locked_mapping.hpp"
#include "io/path_recorder.hpp"

namespace safeshuffle::io {

/// A range of a file in memory. Call `is_safe` right before using it: from then on, the file cannot
/// shrink for /proc/sys/fs/lease-break-time, by default 45 s, and packing a slab takes
/// milliseconds. A process that is stopped for longer while it uses the range could still get
/// SIGBUS.
struct Mapping {
  /// `open` keeps open what the other two belong to. `path_recorder` must outlive this. Throws
  /// IoError with the reason.
  Mapping(std::shared_ptr<const void> open, core::FileLease& file_lease, int descriptor,
          std::uint64_t offset, std::size_t bytes, PathRecorder& path_recorder)
      : file(std::move(open)),
        lease(file_lease.hold()),
        memory(descriptor, offset, bytes),
        recorder(path_recorder) {
    recorder.begin_mapping(bytes);
  }
  ~Mapping() { recorder.end_mapping(memory.bytes().size()); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  bool is_safe() const noexcept { return lease->is_intact(); }

  const std::shared_ptr<const void> file;
  const core::FileLease::Hold lease;
  const core::LockedMapping memory;  // ends before the lease
  PathRecorder& recorder;
};

/// Why a mapping is not safe.
inline constexpr const char* file_in_demand =
    "another process is waiting to write to it or to truncate it";

}  // namespace safeshuffle::io
