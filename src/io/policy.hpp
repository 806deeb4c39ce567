// How a rank reads: the number of threads, their CPUs, the size of the ring, and when directly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "safeshuffle/device.hpp"
#include "safeshuffle/options.hpp"

#include "core/cpus.hpp"
#include "core/defaults.hpp"
#include "device/device.hpp"
#include "io/reader.hpp"

namespace safeshuffle::io {

/// The CPUs that the reader threads of this process may use: those that its launcher has bound it
/// to; for a GPU, all that its cgroup permits.
core::CpuSet usable_cpus(DeviceKind device);

/// Equal on ranks of one node whose reader threads may use the same CPUs.
std::string shared_cpus(DeviceKind device);

/// What defaults depend on.
struct ReadingPlace {
  DeviceKind device = DeviceKind::host;
  unsigned cores = 1;      ///< usable ones
  core::CpuSet usable;     ///< see `usable_cpus`; empty if unknown
  core::CpuSet near;       ///< of these, near the device; empty if none is nearer than others
  core::CpuSet bound;      ///< where threads run unless they are moved
  unsigned sharers = 1;    ///< ranks that share the usable ones, including this one
  bool is_remote = false;  ///< whether what is read is at URLs
};

/// That of this process. `sharers`: see ReadingPlace.
ReadingPlace reading_place(const device::Device& device, unsigned sharers);

/// The options, with defaults for those that are not set. Pure.
ReaderOptions reader_options(const Options& options, const ReadingPlace& place);

/// The CPUs for this number of reader threads: those near the device if there is one for each
/// thread, else those the process is bound to if there is one for each, else the larger of these
/// and the usable ones. Empty: threads are not moved. Pure.
core::CpuSet reader_cpus(const ReadingPlace& place, unsigned threads);

/// Reads of `chunk` bytes that io_uring may have in flight. Pure.
std::size_t reads_in_flight(std::uint64_t chunk);

/// Slots of the ring through which data reaches a GPU: two per thread, so that each can fill one
/// while the other is copied to the device, or one per read that may be in flight, but no more than
/// fit core::most_ring_bytes. At least two. Pure.
std::size_t ring_slots(const ReaderOptions& options, std::uint64_t slot_bytes);

/// Whether a range of a file is to be read bypassing the page cache.
struct AccessChoice {
  bool direct = false;
  std::string_view reason = {};  ///< a literal, for the report; empty if the caller chose
  bool cached = false;           ///< the page cache is known to have all of it
};

/// What DirectIo::automatic chooses for `bytes` bytes of which the page cache has `cached`; nothing
/// if unknown. `local`: see source::Handle::is_local; `estimated`: `cached` is from a sample. Pure.
AccessChoice automatic_access(bool local, std::uint64_t bytes, std::optional<std::uint64_t> cached,
                              bool estimated = false);

}  // namespace safeshuffle::io
