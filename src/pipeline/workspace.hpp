// What the loads of one rank, one after the other, have in common: buffers, reader threads, a
// queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "safeshuffle/communicator.hpp"
#include "safeshuffle/metadata.hpp"
#include "safeshuffle/options.hpp"
#include "safeshuffle/plan.hpp"

#include "core/cpus.hpp"
#include "core/detached_work.hpp"
#include "device/device.hpp"
#include "io/policy.hpp"
#include "io/reader.hpp"
#include "plan/lent_memory.hpp"
#include "source/source.hpp"

namespace safeshuffle::pipeline {

/// All device memory of a load. Null where the plan needs none.
struct Buffers {
  std::shared_ptr<std::byte> arena;
  std::vector<std::shared_ptr<std::byte>> slabs;  ///< that of a wave: plan::slab_of
  std::shared_ptr<std::byte> pack_buffer;         ///< and behind it the landing buffer
};

/// What reader threads do, for the report.
struct Reading {
  core::CpuSet cpus;
  unsigned threads = 0;
  std::uint64_t chunk = 0;
};

/// Used by the loading thread, for one load at a time.
class Workspace {
 public:
  /// Makes nothing yet.
  Workspace(std::shared_ptr<const source::Source> source, Communicator comm, Options options);

  /// For one load at a time. Throws ConfigError if another one has it. At the end, files are
  /// closed.
  void reserve();
  void end_reservation() noexcept;

  /// Makes what a load takes, as far as loads before it have not left it. `lent`: what takes the
  /// place of the arena, or null. `sharers`: see io::ReadingPlace. Throws MemoryError,
  /// TransportError; ConfigError as Queue::follow_caller.
  std::shared_ptr<Buffers> prepare(const Plan& plan, const plan::LentMemory* lent,
                                   unsigned sharers);

  /// Gives everything back, as after a load that failed. Nothing may use it any more.
  void release() noexcept;

  /// A thread that hangs in the kernel, or in CUDA, cannot be joined, so all that it may still use,
  /// such as `buffers`, is left to it, for good; the alternative is to hang with it.
  void abandon(std::shared_ptr<Buffers> buffers) noexcept;

  const source::Source& source() const noexcept { return *source_; }
  const Communicator& comm() const noexcept { return comm_; }
  const Options& options() const noexcept { return options_; }

  // Once prepared. Null is only the reader, when it has been abandoned.
  device::Queue& queue() const noexcept { return *queue_; }
  device::Packer& packer() const noexcept { return *packer_; }
  io::Reader* reader() const noexcept { return reader_.get(); }
  const Reading& reading() const noexcept { return reading_; }
  std::uint64_t pinned_bytes() const { return staging_->pinned_bytes(); }
  bool is_remote() const noexcept { return place_.is_remote; }

  /// Of the load's arena, and of all that is kept.
  std::uint64_t device_bytes() const noexcept {
    return arena_bytes_ + slabs_.size() * slab_bytes_ + pack_bytes_;
  }

 private:
  /// Whatever a reader thread that hangs may still use.
  struct Abandoned {
    std::optional<core::DetachedWork> threads;
    std::shared_ptr<const source::Source> source;
    std::shared_ptr<device::Device> device;
    std::shared_ptr<Buffers> buffers;
    std::unique_ptr<device::Staging> staging;
    std::unique_ptr<io::Reader> reader;
  };

  void release_scratch() noexcept;
  bool is_kept(std::uint64_t needed, std::uint64_t bytes) const noexcept;
  void allocate_scratch(std::uint32_t slabs);
  std::unique_ptr<device::Staging> make_ring() const;
  void make_reader(const Catalog& catalog);

  const std::shared_ptr<const source::Source> source_;
  const Communicator comm_;
  const Options options_;
  const std::shared_ptr<device::Device> device_;
  bool is_reserved_ = false;
  std::unique_ptr<device::Queue> queue_;
  std::unique_ptr<device::Packer> packer_;
  std::uint64_t arena_bytes_ = 0;
  std::uint64_t slab_bytes_ = 0;
  std::uint64_t pack_bytes_ = 0;
  std::vector<std::shared_ptr<std::byte>> slabs_;
  std::shared_ptr<std::byte> pack_buffer_;
  io::ReadingPlace place_;
  io::ReaderOptions reader_options_;
  std::unique_ptr<device::Staging> staging_;
  std::unique_ptr<io::Reader> reader_;
  Reading reading_;
  std::unique_ptr<Abandoned> abandoned_;  // empty: made beforehand, so that abandoning cannot fail
};

}  // namespace safeshuffle::pipeline
