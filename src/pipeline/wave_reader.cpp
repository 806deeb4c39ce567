#include "pipeline/wave_reader.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/defaults.hpp"
#include "core/text.hpp"
#include "plan/waves.hpp"
#include "source/cached.hpp"

namespace safeshuffle::pipeline {
namespace {

constexpr std::chrono::microseconds poll_patience{1000};
constexpr std::chrono::milliseconds settling_patience{30'000};

}  // namespace

WaveReader::WaveReader(Workspace& workspace, const plan::Schedule& schedule,
                       std::shared_ptr<Buffers> buffers, PhaseClock& clock)
    : workspace_(workspace),
      schedule_(schedule),
      buffers_(std::move(buffers)),
      clock_(clock),
      batches_(schedule.slabs),
      deadline_(workspace.options().timeout) {}

WaveReader::~WaveReader() {
  settle();
}

// Small blocks would split what is one read otherwise. But no block is larger than a window.
plan::InPlaceRule WaveReader::in_place_rule() const {
  constexpr std::uint64_t none = ~std::uint64_t{0};
  const std::uint64_t large =
      std::clamp(schedule_.window / 4, core::smallest_chunk, workspace_.reading().chunk);
  return {.smallest = workspace_.options().io == IoEngine::gds ? none : large,
          .congruent = workspace_.pinned_bytes() == 0 && !workspace_.is_remote()};
}

void WaveReader::start(std::uint32_t wave, std::span<const plan::InPlaceBlock> in_place,
                       bool may_leave) {
  const PhaseScope scope(clock_, Phase::read);
  const std::uint32_t slab = plan::slab_of(schedule_, wave);
  batches_[slab].reset();
  plan::slab_at(schedule_, wave, workspace_.comm().rank(), slab_);
  if (slab_.file_ranges.empty()) return;
  std::vector<io::ReadRange> ranges;
  ranges.reserve(slab_.file_ranges.size());
  for (const auto& [range, in_arena] : plan::place_ranges(slab_.file_ranges, in_place)) {
    std::byte* const memory = (in_arena ? buffers_->arena : buffers_->slabs[slab]).get();
    ranges.push_back({range.file, range.file_offset, range.bytes, memory + range.slab_offset,
                      may_leave && !in_arena, !in_arena});
    if (in_arena) in_place_bytes_ += range.bytes;
  }
  batches_[slab] = workspace_.reader()->submit(ranges);
}

std::optional<ErrorRecord> WaveReader::wait(std::uint32_t wave,
                                            const std::function<void()>& meanwhile) {
  const std::uint32_t slab = plan::slab_of(schedule_, wave);
  const std::optional<io::BatchId> batch = batches_[slab];
  left_.reset();
  if (!batch) return std::nullopt;
  const PhaseScope scope(clock_, Phase::read);
  deadline_.restart();
  io::BatchStatus status;
  for (std::uint64_t landed = 0;; landed = status.bytes) {
    status = workspace_.reader()->poll(*batch, poll_patience);
    if (status.done) break;
    // Without staging, data is on the device as soon as it is read.
    if (status.read && workspace_.pinned_bytes() != 0) clock_.enter(Phase::h2d);
    if (status.bytes != landed) deadline_.restart();
    if (deadline_.expired()) {
      workspace_.abandon(buffers_);
      return status.error ? status.error : stall(wave);
    }
    if (!status.error) meanwhile();
  }
  batches_[slab].reset();
  note(Span::Track::reads, wave, status.reads);
  note(Span::Track::copies, wave, status.copies);
  if (!status.left.empty()) {
    left_.emplace(buffers_->slabs[slab].get(), std::move(status.left));
  }
  return status.error ? status.error : first_fallback();
}

void WaveReader::cancel() noexcept {
  if (io::Reader* const reader = workspace_.reader()) reader->cancel();
}

void WaveReader::note(Span::Track track, std::uint32_t wave,
                      const std::optional<io::Activity>& activity) {
  if (activity) clock_.note(track, "wave " + std::to_string(wave), activity->begin, activity->end);
}

void WaveReader::drop_cached(std::uint32_t wave) {
  plan::slab_at(schedule_, wave, workspace_.comm().rank(), slab_);
  std::map<std::uint32_t, plan::Range> by_file;
  for (const plan::FileRange& read : slab_.file_ranges) {
    const plan::Range range{read.file_offset, read.file_offset + read.bytes};
    plan::Range& all = by_file.try_emplace(read.file, range).first->second;
    all = {std::min(all.begin, range.begin), std::max(all.end, range.end)};
  }
  for (const auto& [file, range] : by_file) {
    source::drop_cached(workspace_.source(), schedule_.catalog.files()[file].path, range.begin,
                        range.end);
  }
}

void WaveReader::drop_cached_files() {
  for (const std::uint32_t file : schedule_.ranks[workspace_.comm().rank()].files) {
    const FileInfo& info = schedule_.catalog.files()[file];
    source::drop_cached(workspace_.source(), info.path, 0, info.size);
  }
}

std::optional<ErrorRecord> WaveReader::first_fallback() const {
  if (!workspace_.options().strict) return std::nullopt;
  const io::IoPath path = workspace_.reader()->path();
  if (path.fallbacks.empty()) return std::nullopt;
  return ErrorRecord{.kind = ErrorKind::fallback, .cause = "strict: " + path.fallbacks.front()};
}

ErrorRecord WaveReader::stall(std::uint32_t wave) const {
  return {.kind = ErrorKind::timeout,
          .cause = "reading wave " + std::to_string(wave) + ": no progress within " +
                   core::seconds_text(deadline_.limit())};
}

// A load that has failed must not block on local storage: after an error of any rank the next waves
// may still be read. A later one may be done, because it was dropped, while an earlier one hangs.
void WaveReader::settle() noexcept {
  io::Reader* const reader = workspace_.reader();
  const bool is_reading = std::ranges::any_of(batches_, [](const auto& batch) { return !!batch; });
  if (reader == nullptr || !is_reading) return;
  cancel();
  const core::Deadline deadline(std::min(deadline_.limit(), settling_patience));
  for (const auto& batch : batches_) {
    if (batch && !reader->poll(*batch, deadline.remaining()).done) {
      workspace_.abandon(buffers_);
      return;
    }
  }
}

}  // namespace safeshuffle::pipeline
