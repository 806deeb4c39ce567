// Reads the waves of one rank ahead of their use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/options.hpp"

#include "core/cpus.hpp"
#include "core/deadline.hpp"
#include "core/detached_work.hpp"
#include "device/device.hpp"
#include "io/policy.hpp"
#include "io/reader.hpp"
#include "pipeline/file_slab.hpp"
#include "pipeline/phase_clock.hpp"
#include "plan/in_place.hpp"
#include "plan/schedule.hpp"
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

/// Used by the loading thread. `source`, `schedule`, `options` and `clock` must outlive it, and
/// `source` also reads that hang.
class WaveReader {
 public:
  /// Begins to allocate the ring through which data gets to the device. Locking its pages takes
  /// milliseconds, in which the caller can allocate the buffers. `sharers`: see io::ReadingPlace.
  /// Throws MemoryError.
  WaveReader(const source::Source& source, const plan::Schedule& schedule, std::uint32_t rank,
             std::shared_ptr<device::Device> device, const Options& options, unsigned sharers,
             PhaseClock& clock);

  /// Ends reads in progress, or abandons them after a time, with all memory that they may still
  /// use.
  ~WaveReader();
  WaveReader(const WaveReader&) = delete;
  WaveReader& operator=(const WaveReader&) = delete;

  /// Waits for the ring. To be called once, before the following. Throws MemoryError,
  /// TransportError.
  void open(std::shared_ptr<Buffers> buffers);

  /// What can be read in place. On the host, direct reads need congruent memory, and cuFile knows
  /// the slabs only. Shorter blocks would cost more, in reads of their unaligned ends, than a copy
  /// within the device.
  plan::InPlaceRule in_place_rule() const;

  /// Starts reading a wave into its slab, which must be free, but for `in_place`. With `may_leave`,
  /// what the page cache has of the rest stays in its files: see `source`.
  void start(std::uint32_t wave, std::span<const plan::InPlaceBlock> in_place, bool may_leave);

  /// Waits until a wave that was started has landed; calls `meanwhile` now and then. Returns what
  /// went wrong: a read that failed, one that made no progress within the time-out, or, with
  /// Options::strict, one that fell back.
  std::optional<ErrorRecord> wait(std::uint32_t wave, const std::function<void()>& meanwhile);

  /// The wave that was waited for last, if parts of it were left in their files; else null: all of
  /// it is in its slab.
  const FileSlab* source() const noexcept { return left_ ? &*left_ : nullptr; }

  /// To be called after its last use: closes the files that it keeps open.
  void drop_source() noexcept { left_.reset(); }

  /// Drops from the page cache what it has read of a wave, and whatever is in between.
  void drop_cached(std::uint32_t wave);

  /// Drops the rest of the files, such as headers and what the system has read ahead. After the
  /// last wave of all ranks.
  void drop_cached_files();

  io::IoPath io_path() const { return reader_->path(); }
  double busy_seconds() const { return reader_->busy_seconds(); }
  std::uint64_t in_place_bytes() const noexcept { return in_place_bytes_; }
  std::uint64_t pinned_bytes() const { return staging_->pinned_bytes(); }
  const Reading& reading() const noexcept { return reading_; }

 private:
  /// Whatever a reader thread that hangs may still use.
  struct Abandoned {
    std::optional<core::DetachedWork> threads;
    std::shared_ptr<device::Device> device;
    std::shared_ptr<Buffers> buffers;
    std::unique_ptr<device::Staging> staging;
    std::unique_ptr<io::Reader> reader;
  };

  std::unique_ptr<device::Staging> make_ring() const;
  void make_reader();
  std::uint64_t slab_bytes() const noexcept { return schedule_.ranks[rank_].slab_bytes; }
  void note(Span::Track track, std::uint32_t wave, const std::optional<io::Activity>& activity);
  std::optional<ErrorRecord> first_fallback() const;
  ErrorRecord stall(std::uint32_t wave) const;
  void settle() noexcept;
  void abandon() noexcept;

  const source::Source& source_;
  const plan::Schedule& schedule_;
  const std::uint32_t rank_;
  const Options& options_;
  PhaseClock& clock_;
  std::shared_ptr<device::Device> device_;
  const io::ReadingPlace place_;
  const io::ReaderOptions reader_options_;
  std::future<std::unique_ptr<device::Staging>> ring_;  // until `open`
  std::shared_ptr<Buffers> buffers_;
  std::unique_ptr<device::Staging> staging_;
  std::unique_ptr<io::Reader> reader_;
  Reading reading_;
  plan::Slab slab_;  // scratch
  std::uint64_t in_place_bytes_ = 0;
  // By plan::slab_of the wave; empty if nothing is read.
  std::vector<std::optional<io::BatchId>> batches_;
  std::optional<FileSlab> left_;
  core::Deadline deadline_;
  std::unique_ptr<Abandoned> abandoned_;  // empty: made beforehand, so that abandoning cannot fail
};

}  // namespace safeshuffle::pipeline
