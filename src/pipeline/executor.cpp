#include "pipeline/executor.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "safeshuffle/error.hpp"

#include "comm/lost_peers.hpp"
#include "core/backoff.hpp"
#include "core/detached_work.hpp"
#include "core/error_wire.hpp"
#include "core/process.hpp"
#include "core/text.hpp"

namespace safeshuffle::pipeline {
namespace {

constexpr std::chrono::microseconds poll_patience{1000};
constexpr std::chrono::seconds settling_patience{3};
constexpr std::chrono::milliseconds progress_interval{100};

ReadingPlace reading_place(const Options& options, const device::Device& device, unsigned sharers) {
  ReadingPlace place;
  place.device = device.kind();
  place.usable = usable_cpus(options, place.device);
  place.cores =
      place.usable.empty() ? core::available_cores() : static_cast<unsigned>(place.usable.size());
  place.bound = core::allowed_cpus();
  place.sharers = sharers;
  if (options.numa == Numa::automatic) place.near = device.near_cpus(place.usable);
  return place;
}

std::shared_ptr<std::byte> allocate(device::Device& device, std::uint64_t bytes) {
  return bytes == 0 ? nullptr : device.allocate(bytes);
}

std::shared_ptr<Buffers> allocate_buffers(device::Device& device, const RankSummary& rank) {
  auto buffers = std::make_shared<Buffers>();
  buffers->arena = allocate(device, rank.arena_bytes);
  for (auto& slab : buffers->slabs) slab = allocate(device, rank.slab_bytes);
  buffers->pack_buffer = allocate(device, rank.pack_bytes);
  return buffers;
}

std::vector<std::uint64_t> cumulative_bytes(const plan::Schedule& schedule) {
  std::vector<std::uint64_t> totals(schedule.waves);
  std::uint64_t total = 0;
  for (std::uint32_t wave = 0; wave < schedule.waves; ++wave) {
    for (std::uint32_t reader = 0; reader < schedule.world; ++reader) {
      for (const plan::FileRange& range : schedule.slab(wave, reader).file_ranges)
        total += range.bytes;
    }
    totals[wave] = total;
  }
  return totals;
}

std::vector<FileInfo> files_of(const plan::Schedule& schedule) {
  const auto files = schedule.catalog.files();
  return {files.begin(), files.end()};
}

}  // namespace

Executor::Executor(const Plan& plan, const Communicator& comm, const Options& options,
                   unsigned sharers, PhaseClock& clock)
    : schedule_(plan.schedule()),
      transport_(comm.transport()),
      device_(comm.device_handle()),
      options_(options),
      clock_(clock),
      queue_(device_->make_queue()),
      buffers_(allocate_buffers(*device_, plan.ranks()[comm.rank()])),
      packer_(device_->make_packer(*queue_)),
      planner_(schedule_),
      deadline_(options.timeout),
      bytes_after_wave_(cumulative_bytes(schedule_)),
      last_report_(core::Clock::now()) {
  const ReadingPlace place = reading_place(options, *device_, sharers);
  const io::ReaderOptions reader = reader_options(options, place);
  core::run_on(reader_cpus(place, reader.threads),
               [&] { make_reader(reader, plan.ranks()[comm.rank()].slab_bytes); });
  progress_.waves = schedule_.waves;
  progress_.total_bytes = bytes_after_wave_.empty() ? 0 : bytes_after_wave_.back();
}

Executor::~Executor() = default;

// Its threads, and the memory that they fill, stay on the CPUs that this one runs on.
void Executor::make_reader(const io::ReaderOptions& options, std::uint64_t slab_bytes) {
  // No piece is larger than a slab, whatever the chunk.
  const std::uint64_t slot_bytes = std::min(options.chunk, slab_bytes);
  staging_ = device_->make_staging(slot_bytes, ring_slots(slot_bytes, options.threads));
  reader_ = io::make_reader(options, files_of(schedule_), *staging_);
  reading_ = {core::allowed_cpus(), options.threads, options.chunk};
}

void Executor::run() {
  try {
    run_waves();
  } catch (...) {
    settle_reader();
    throw;
  }
}

void Executor::run_waves() {
  WaveBatch reading = start_reading(0);
  connect();
  for (std::uint32_t wave = 0; wave < schedule_.waves; ++wave) {
    // The other slab is free since the exchange of the wave before; keep the disk busy from now on.
    const WaveBatch next = start_reading(wave + 1);
    const Transfers transfers = plan_transfers(wave);
    await_reading(reading);
    pack(transfers, wave);
    exchange(transfers, wave);
    finish_wave();
    reading = next;
  }
}

// Overlaps the first read, but follows the last allocation: no cudaMalloc may run beside NCCL's
// kernels, and NCCL allocates as well.
void Executor::connect() {
  if (schedule_.waves == 0) return;
  const PhaseScope scope(clock_, Phase::allocate);
  transport_.connect(*queue_, core::Deadline(deadline_.limit()));
}

Executor::WaveBatch Executor::start_reading(std::uint32_t wave) {
  WaveBatch reading{wave, {}, core::Clock::now()};
  if (wave >= schedule_.waves || error_) return reading;
  const plan::Slab& slab = schedule_.slab(wave, transport_.rank());
  if (slab.file_ranges.empty()) return reading;
  std::vector<io::ReadRange> ranges;
  ranges.reserve(slab.file_ranges.size());
  for (const plan::FileRange& range : slab.file_ranges) {
    ranges.push_back({range.file, range.file_offset, range.bytes,
                      buffers_->slabs[wave % 2].get() + range.slab_offset});
  }
  attempt([&] { reading.batch = last_batch_ = reader_->submit(ranges); });
  return reading;
}

void Executor::await_reading(const WaveBatch& reading) {
  if (!reading.batch) return;
  const PhaseScope scope(clock_, Phase::read);
  deadline_.restart();
  std::uint64_t landed = 0;
  for (;;) {
    const io::BatchStatus status = reader_->poll(*reading.batch, poll_patience);
    if (status.error) note_failure(*status.error);
    if (status.done) break;
    // Without staging, data is on the device as soon as it is read.
    if (status.read && pinned_bytes() != 0) clock_.enter(Phase::h2d);
    if (status.bytes != landed) deadline_.restart();
    landed = status.bytes;
    if (deadline_.expired()) {
      abandon_reader();
      fail_stalled(reading.wave);
    }
    report_if_due();
  }
  clock_.note_read(reading.wave, reading.begin);
  check_fallbacks();
}

void Executor::fail_stalled(std::uint32_t wave) const {
  throw TimeoutError(ErrorRecord{.rank = static_cast<std::int32_t>(transport_.rank()),
                                 .cause = "reading wave " + std::to_string(wave) +
                                          ": no progress within " +
                                          core::seconds_text(deadline_.limit())});
}

// Whoever gave up on a peer must not wait for ever for its own storage instead.
void Executor::settle_reader() {
  const bool resting =
      !reader_ || !last_batch_ || reader_->poll(*last_batch_, settling_patience).done;
  if (!resting) abandon_reader();
}

// A thread that hangs in the kernel cannot be joined, so all that it may still use is left to it,
// for good; the alternative is to hang with it.
void Executor::abandon_reader() {
  struct Abandoned {
    core::DetachedWork threads;
    std::shared_ptr<device::Device> device;
    std::shared_ptr<Buffers> buffers;
    std::unique_ptr<device::Staging> staging;
    std::unique_ptr<io::Reader> reader;
  };
  static_cast<void>(new Abandoned{
      {}, device_, buffers_, std::move(staging_), std::move(reader_)});  // never freed
}

void Executor::note_failure(const ErrorRecord& error) {
  if (!error_) error_ = error;
}

template <class Step>
void Executor::attempt(const Step& step) {
  try {
    step();
  } catch (...) {
    note_failure(core::current_error());
  }
}

void Executor::check_fallbacks() {
  if (!options_.strict) return;
  const io::IoPath path = reader_->path();
  if (path.fallbacks.empty()) return;
  note_failure({.kind = ErrorKind::fallback, .cause = "strict: " + path.fallbacks.front()});
}

Executor::Transfers Executor::plan_transfers(std::uint32_t wave) {
  const PhaseScope scope(clock_, Phase::pack);
  return {planner_.outgoing(wave, transport_.rank()), planner_.incoming(wave, transport_.rank())};
}

void Executor::pack(const Transfers& transfers, std::uint32_t wave) {
  const PhaseScope scope(clock_, Phase::pack);
  attempt([&] {
    packer_->pack(transfers.outgoing.items, {buffers_->slabs[wave % 2].get(), buffers_->arena.get(),
                                             buffers_->pack_buffer.get()});
  });
}

void Executor::exchange(const Transfers& transfers, std::uint32_t wave) {
  const PhaseScope scope(clock_, Phase::exchange);
  deadline_.restart();
  const auto pending = transport_.exchange(messages(transfers, wave), *queue_);
  core::Backoff backoff;
  while (!pending->done()) {
    if (deadline_.expired()) {
      comm::raise_lost_peers("the exchange of wave " + std::to_string(wave), pending->missing(),
                             deadline_.limit());
    }
    report_if_due();
    backoff.pause();
  }
}

comm::Exchange Executor::messages(const Transfers& transfers, std::uint32_t wave) const {
  const auto convert = [&](const std::vector<plan::Run>& runs) {
    std::vector<comm::Message> list;
    list.reserve(runs.size());
    for (const plan::Run& run : runs) list.push_back({run.peer, address(run, wave), run.bytes});
    return list;
  };
  return {convert(transfers.outgoing.sends), convert(transfers.incoming.receives),
          convert(transfers.incoming.broadcasts), buffers_};
}

std::byte* Executor::address(const plan::Run& run, std::uint32_t wave) const {
  switch (run.memory) {
    case plan::RunMemory::arena:
      return buffers_->arena.get() + run.offset;
    case plan::RunMemory::pack_buffer:
      return buffers_->pack_buffer.get() + run.offset;
    case plan::RunMemory::slab:
      break;
  }
  return buffers_->slabs[wave % 2].get() + run.offset;
}

void Executor::finish_wave() {
  progress_.bytes = bytes_after_wave_[progress_.wave++];
  report();
}

void Executor::report_if_due() {
  if (core::Clock::now() - last_report_ >= progress_interval) report();
}

void Executor::report() {
  if (!options_.on_progress || error_) return;
  last_report_ = core::Clock::now();
  attempt([&] { options_.on_progress(progress_); });
}

}  // namespace safeshuffle::pipeline
