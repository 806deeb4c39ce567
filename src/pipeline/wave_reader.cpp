#include "pipeline/wave_reader.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/defaults.hpp"
#include "core/text.hpp"
#include "core/thread.hpp"
#include "plan/waves.hpp"
#include "source/cached.hpp"

namespace safeshuffle::pipeline {
namespace {

constexpr std::chrono::microseconds poll_patience{1000};
constexpr std::chrono::milliseconds settling_patience{30'000};

std::vector<FileInfo> files_of(const plan::Schedule& schedule) {
  const auto files = schedule.catalog.files();
  return {files.begin(), files.end()};
}

}  // namespace

WaveReader::WaveReader(const source::Source& source, const plan::Schedule& schedule,
                       std::uint32_t rank, std::shared_ptr<device::Device> device,
                       const Options& options, unsigned sharers, PhaseClock& clock)
    : source_(source),
      schedule_(schedule),
      rank_(rank),
      options_(options),
      clock_(clock),
      device_(std::move(device)),
      place_(io::reading_place(*device_, sharers)),
      reader_options_(io::reader_options(options, place_)),
      batches_(schedule.slabs),
      deadline_(options.timeout),
      abandoned_(std::make_unique<Abandoned>()) {
  ring_ = core::start_async([this] { return make_ring(); });
}

void WaveReader::open(std::shared_ptr<Buffers> buffers) {
  buffers_ = std::move(buffers);
  staging_ = ring_.get();
  core::run_on(io::reader_cpus(place_, reader_options_.threads), [&] { make_reader(); });
}

WaveReader::~WaveReader() {
  settle();
}

// Near the CPUs that fill it. No piece is larger than a slab, whatever the chunk.
std::unique_ptr<device::Staging> WaveReader::make_ring() const {
  const std::uint64_t slot_bytes = std::min(reader_options_.chunk, slab_bytes());
  std::unique_ptr<device::Staging> ring;
  core::run_on(io::reader_cpus(place_, reader_options_.threads), [&] {
    ring = device_->make_staging(slot_bytes, io::ring_slots(reader_options_, slot_bytes));
  });
  return ring;
}

// Its threads stay on the CPUs that this one runs on.
void WaveReader::make_reader() {
  std::vector<std::span<std::byte>> slabs;
  for (const auto& slab : buffers_->slabs) {
    if (slab) slabs.emplace_back(slab.get(), slab_bytes());
  }
  reader_ = io::make_reader(reader_options_, source_, files_of(schedule_), *staging_, slabs);
  reading_ = {core::allowed_cpus(), reader_->path().threads, reader_options_.chunk};
}

// Small blocks would split what is one read otherwise. But no block is larger than a window.
plan::InPlaceRule WaveReader::in_place_rule() const {
  constexpr std::uint64_t none = ~std::uint64_t{0};
  const std::uint64_t large =
      std::clamp(schedule_.window / 4, core::smallest_chunk, reading_.chunk);
  return {.smallest = options_.io == IoEngine::gds ? none : large,
          .congruent = pinned_bytes() == 0};
}

void WaveReader::start(std::uint32_t wave, std::span<const plan::InPlaceBlock> in_place,
                       bool may_leave) {
  const PhaseScope scope(clock_, Phase::read);
  const std::uint32_t slab = plan::slab_of(schedule_, wave);
  batches_[slab].reset();
  plan::slab_at(schedule_, wave, rank_, slab_);
  if (slab_.file_ranges.empty()) return;
  std::vector<io::ReadRange> ranges;
  ranges.reserve(slab_.file_ranges.size());
  for (const auto& [range, in_arena] : plan::place_ranges(slab_.file_ranges, in_place)) {
    std::byte* const memory = (in_arena ? buffers_->arena : buffers_->slabs[slab]).get();
    ranges.push_back({range.file, range.file_offset, range.bytes, memory + range.slab_offset,
                      may_leave && !in_arena, !in_arena});
    if (in_arena) in_place_bytes_ += range.bytes;
  }
  batches_[slab] = reader_->submit(ranges);
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
    status = reader_->poll(*batch, poll_patience);
    if (status.done) break;
    // Without staging, data is on the device as soon as it is read.
    if (status.read && pinned_bytes() != 0) clock_.enter(Phase::h2d);
    if (status.bytes != landed) deadline_.restart();
    if (deadline_.expired()) {
      abandon();
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

void WaveReader::note(Span::Track track, std::uint32_t wave,
                      const std::optional<io::Activity>& activity) {
  if (activity) clock_.note(track, "wave " + std::to_string(wave), activity->begin, activity->end);
}

void WaveReader::drop_cached(std::uint32_t wave) {
  plan::slab_at(schedule_, wave, rank_, slab_);
  std::map<std::uint32_t, plan::Range> by_file;
  for (const plan::FileRange& read : slab_.file_ranges) {
    const plan::Range range{read.file_offset, read.file_offset + read.bytes};
    plan::Range& all = by_file.try_emplace(read.file, range).first->second;
    all = {std::min(all.begin, range.begin), std::max(all.end, range.end)};
  }
  for (const auto& [file, range] : by_file) {
    source::drop_cached(source_, schedule_.catalog.files()[file].path, range.begin, range.end);
  }
}

void WaveReader::drop_cached_files() {
  for (const std::uint32_t file : schedule_.ranks[rank_].files) {
    const FileInfo& info = schedule_.catalog.files()[file];
    source::drop_cached(source_, info.path, 0, info.size);
  }
}

std::optional<ErrorRecord> WaveReader::first_fallback() const {
  if (!options_.strict) return std::nullopt;
  const io::IoPath path = reader_->path();
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
  if (!reader_) return;
  reader_->cancel();
  const core::Deadline deadline(std::min(deadline_.limit(), settling_patience));
  for (const auto& batch : batches_) {
    if (batch && !reader_->poll(*batch, deadline.remaining()).done) {
      abandon();
      return;
    }
  }
}

// A thread that hangs in the kernel, or in CUDA, cannot be joined, so all that it may still use is
// left to it, for good; the alternative is to hang with it.
void WaveReader::abandon() noexcept {
  abandoned_->threads.emplace();
  abandoned_->device = device_;
  abandoned_->buffers = buffers_;
  abandoned_->staging = std::move(staging_);
  abandoned_->reader = std::move(reader_);
  static_cast<void>(abandoned_.release());  // never freed
}

}  // namespace safeshuffle::pipeline
