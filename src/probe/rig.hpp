// What the trials of a probe share on one rank.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "safeshuffle/communicator.hpp"
#include "safeshuffle/metadata.hpp"

#include "core/cpus.hpp"
#include "device/device.hpp"
#include "io/reader.hpp"
#include "plan/schedule.hpp"
#include "probe/sample.hpp"
#include "source/source.hpp"

namespace safeshuffle::probing {

/// Pieces of device memory, as many as a load has slabs.
struct ProbeSlabs {
  std::array<std::shared_ptr<std::byte>, plan::slabs_per_rank> memory;
  std::uint64_t bytes = 0;  ///< of each
};

/// Used by one thread. Outlives the trials.
struct ProbeRig {
  std::shared_ptr<const source::Source> source;
  bool is_remote = false;  ///< see io::ReadingPlace
  const Communicator& comm;
  std::vector<FileInfo> files;
  io::ReaderOptions reader;
  core::CpuSet reader_cpus;
  std::uint64_t window = 0;           ///< bytes read at a time
  std::uint64_t moved_bytes = 0;      ///< device memory that is moved in one run
  std::chrono::milliseconds most{0};  ///< that one run of reading takes
  std::chrono::milliseconds timeout{0};
  Sample sample;
  std::string engine;  ///< of the reader, like its threads; empty before it has read
  unsigned reader_threads = 0;
  std::shared_ptr<ProbeSlabs> slabs;  ///< shared with exchanges that may be abandoned
  std::unique_ptr<device::Queue> queue;
  std::unique_ptr<device::Packer> packer;

  /// Waits for what is enqueued. Throws TimeoutError, TransportError.
  void await_queue();

  /// Writes all pages of the slabs, and waits: the system may have taken them back.
  void touch_slabs();
};

}  // namespace safeshuffle::probing
