// Reads the waves of one rank ahead of their use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "safeshuffle/error.hpp"

#include "core/deadline.hpp"
#include "io/reader.hpp"
#include "pipeline/file_slab.hpp"
#include "pipeline/phase_clock.hpp"
#include "pipeline/workspace.hpp"
#include "plan/in_place.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::pipeline {

/// Used by the loading thread. `workspace`, which has been prepared, `schedule` and `clock` must
/// outlive it.
class WaveReader {
 public:
  WaveReader(Workspace& workspace, const plan::Schedule& schedule, std::shared_ptr<Buffers> buffers,
             PhaseClock& clock);

  /// Ends reads in progress, or abandons them after a time, with all memory that they may still
  /// use; the workspace must then be released.
  ~WaveReader();
  WaveReader(const WaveReader&) = delete;
  WaveReader& operator=(const WaveReader&) = delete;

  /// What can be read in place. On the host, direct reads of files need congruent memory, and
  /// cuFile knows the slabs only. Shorter blocks would cost more, in reads of their unaligned ends,
  /// than a copy within the device.
  plan::InPlaceRule in_place_rule() const;

  /// Starts reading a wave into its slab, which must be free, but for `in_place`. With `may_leave`,
  /// what the page cache has of the rest stays in its files: see `source`.
  void start(std::uint32_t wave, std::span<const plan::InPlaceBlock> in_place, bool may_leave);

  /// Waits until a wave that was started has landed; calls `meanwhile` now and then. Returns what
  /// went wrong: a read that failed, one that made no progress within the time-out, or, with
  /// Options::strict, one that fell back.
  std::optional<ErrorRecord> wait(std::uint32_t wave, const std::function<void()>& meanwhile);

  /// Reads of which nothing is in progress yet fail at once, from now on.
  void cancel() noexcept;

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

  std::uint64_t in_place_bytes() const noexcept { return in_place_bytes_; }

 private:
  void note(Span::Track track, std::uint32_t wave, const std::optional<io::Activity>& activity);
  std::optional<ErrorRecord> first_fallback() const;
  ErrorRecord stall(std::uint32_t wave) const;
  void settle() noexcept;

  Workspace& workspace_;
  const plan::Schedule& schedule_;
  const std::shared_ptr<Buffers> buffers_;
  PhaseClock& clock_;
  plan::Slab slab_;  // scratch
  std::uint64_t in_place_bytes_ = 0;
  // By plan::slab_of the wave; empty if nothing is read.
  std::vector<std::optional<io::BatchId>> batches_;
  std::optional<FileSlab> left_;
  core::Deadline deadline_;
};

}  // namespace safeshuffle::pipeline
