// How a rank reads: with how many threads, on which CPUs, through how large a ring.
#pragma once

#include <cstddef>
#include <cstdint>

#include "safeshuffle/device.hpp"
#include "safeshuffle/options.hpp"

#include "core/cpus.hpp"
#include "core/defaults.hpp"
#include "io/reader.hpp"

namespace safeshuffle::pipeline {

/// Of options that are not given.
const core::Defaults& defaults_on(DeviceKind device);

/// The CPUs that the reader threads of this process may be given: those that its launcher has bound
/// it to; for a GPU, with Numa::automatic, all that its cgroup permits.
core::CpuSet usable_cpus(const Options& options, DeviceKind device);

/// What defaults depend on.
struct ReadingPlace {
  DeviceKind device = DeviceKind::host;
  unsigned cores = 1;    ///< usable ones
  core::CpuSet usable;   ///< see `usable_cpus`; empty if the system does not say
  core::CpuSet near;     ///< of these, near the device; empty if none is nearer than others
  core::CpuSet bound;    ///< where threads run that are not moved
  unsigned sharers = 1;  ///< ranks that have the usable ones together, this one included
};

/// The options, with defaults for those that are not given. Pure.
io::ReaderOptions reader_options(const Options& options, const ReadingPlace& place);

/// Where so many reader threads go: near the device if there is a CPU for each, else where they are
/// if there is one for each, else where there are most. Empty: where they are. Pure.
core::CpuSet reader_cpus(const ReadingPlace& place, unsigned threads);

/// Slots of the ring through which data gets to a GPU: two per thread, so that each can fill one
/// while another is on its way to the device, but only as many as the ring may have bytes. Pure.
std::size_t ring_slots(std::uint64_t slot_bytes, unsigned threads);

}  // namespace safeshuffle::pipeline
