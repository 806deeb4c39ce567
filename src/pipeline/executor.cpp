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
#include "plan/waves.hpp"

namespace safeshuffle::pipeline {
namespace {

constexpr std::chrono::microseconds poll_patience{1000};
constexpr std::chrono::milliseconds settling_patience{30'000};
constexpr std::chrono::milliseconds stall_notice{500};
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

std::uint64_t read_bytes(const Plan& plan) {
  std::uint64_t bytes = 0;
  for (const RankSummary& rank : plan.ranks()) bytes += rank.read_bytes;
  return bytes;
}

std::vector<FileInfo> files_of(const plan::Schedule& schedule) {
  const auto files = schedule.catalog.files();
  return {files.begin(), files.end()};
}

}  // namespace

Executor::Executor(const source::Source& source, const Plan& plan, const Communicator& comm,
                   const Options& options, unsigned sharers, PhaseClock& clock)
    : schedule_(plan.schedule()),
      transport_(comm.transport()),
      device_(comm.device_handle()),
      options_(options),
      clock_(clock),
      queue_(device_->make_queue()),
      buffers_(allocate_buffers(*device_, plan.ranks()[comm.rank()])),
      packer_(device_->make_packer(*queue_)),
      planner_(schedule_, comm.rank()),
      deadline_(options.timeout),
      abandoned_(std::make_unique<Abandoned>()),
      last_report_(core::Clock::now()) {
  const ReadingPlace place = reading_place(options, *device_, sharers);
  const io::ReaderOptions reader = reader_options(options, place);
  core::run_on(reader_cpus(place, reader.threads),
               [&] { make_reader(source, reader, plan.ranks()[comm.rank()].slab_bytes); });
  if (schedule_.waves != 0) transfers_ = plan_transfers(0);
  progress_.waves = schedule_.waves;
  progress_.total_bytes = read_bytes(plan);
}

Executor::~Executor() {
  settle_reader();
}

// Its threads, and the memory that they fill, stay on the CPUs that this one runs on.
void Executor::make_reader(const source::Source& source, const io::ReaderOptions& options,
                           std::uint64_t slab_bytes) {
  // No piece is larger than a slab, whatever the chunk.
  const std::uint64_t slot_bytes = std::min(options.chunk, slab_bytes);
  staging_ = device_->make_staging(slot_bytes, ring_slots(slot_bytes, options.threads));
  reader_ = io::make_reader(options, source, files_of(schedule_), *staging_);
  reading_ = {core::allowed_cpus(), options.threads, options.chunk};
}

void Executor::run() {
  WaveBatch reading = start_reading(0);
  connect();
  for (std::uint32_t wave = 0; wave < schedule_.waves; ++wave) {
    // The other slab is free since the exchange of the wave before; keep the disk busy from now on.
    const WaveBatch next = start_reading(wave + 1);
    Transfers transfers = std::exchange(transfers_, {});
    prepare_transfers(wave + 1);
    await_reading(reading);
    pack(transfers.items, wave);
    if (!exchange(std::move(transfers.exchange), wave)) return;
    finish_wave(wave);
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
  attempt([&] {
    plan::slab_at(schedule_, wave, transport_.rank(), slab_);
    if (slab_.file_ranges.empty()) return;
    std::vector<io::ReadRange> ranges;
    ranges.reserve(slab_.file_ranges.size());
    for (const plan::FileRange& range : slab_.file_ranges) {
      ranges.push_back({range.file, range.file_offset, range.bytes,
                        buffers_->slabs[wave % 2].get() + range.slab_offset});
    }
    reading.batch = last_batch_ = reader_->submit(ranges);
  });
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
      note_stall(reading.wave);
      return abandon_reader();
    }
    report_if_due();
  }
  clock_.note_read(reading.wave, reading.begin);
  check_fallbacks();
}

void Executor::note_stall(std::uint32_t wave) {
  note_failure({.kind = ErrorKind::timeout,
                .cause = "reading wave " + std::to_string(wave) + ": no progress within " +
                         core::seconds_text(deadline_.limit())});
}

// A load that has failed must not block on local storage: after an error of any rank the next wave
// may still be read.
void Executor::settle_reader() noexcept {
  if (!reader_ || !last_batch_) return;
  reader_->cancel();
  const auto patience = std::min(deadline_.limit(), settling_patience);
  if (!reader_->poll(*last_batch_, patience).done) abandon_reader();
}

// A thread that hangs in the kernel cannot be joined, so all that it may still use is left to it,
// for good; the alternative is to hang with it.
void Executor::abandon_reader() noexcept {
  abandoned_->threads.emplace();
  abandoned_->device = device_;
  abandoned_->buffers = buffers_;
  abandoned_->staging = std::move(staging_);
  abandoned_->reader = std::move(reader_);
  static_cast<void>(abandoned_.release());  // never freed
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

// One wave ahead: without its transfers a rank could not take part in a wave, so if they cannot be
// made, the others must know before.
void Executor::prepare_transfers(std::uint32_t wave) {
  if (wave >= schedule_.waves || error_) return;
  attempt([&] { transfers_ = plan_transfers(wave); });
}

Executor::Transfers Executor::plan_transfers(std::uint32_t wave) {
  const PhaseScope scope(clock_, Phase::pack);
  plan::Outgoing outgoing = planner_.outgoing(wave);
  const plan::Incoming incoming = planner_.incoming(wave);
  return {std::move(outgoing.items),
          {.sends = messages(outgoing.sends, wave),
           .receives = messages(incoming.receives, wave),
           .broadcasts = messages(incoming.broadcasts, wave),
           .keep_alive = buffers_}};
}

void Executor::pack(const std::vector<PackItem>& items, std::uint32_t wave) {
  const PhaseScope scope(clock_, Phase::pack);
  attempt([&] {
    packer_->pack(items, {buffers_->slabs[wave % 2].get(), buffers_->arena.get(),
                          buffers_->pack_buffer.get()});
  });
}

// Whether no rank has failed. Waits a little longer than for reads, so that a rank whose storage
// stalls is the first to give up, and can tell the others.
bool Executor::exchange(comm::Exchange exchange, std::uint32_t wave) {
  const PhaseScope scope(clock_, Phase::exchange);
  const core::Deadline deadline(deadline_.limit() + stall_notice);
  exchange.failed = error_.has_value();
  const auto pending = transport_.exchange(std::move(exchange), *queue_);
  core::Backoff backoff;
  while (!pending->done()) {
    if (deadline.expired()) {
      comm::raise_lost_peers("the exchange of wave " + std::to_string(wave), pending->missing(),
                             deadline_.limit());
    }
    report_if_due();
    backoff.pause();
  }
  return !pending->failed();
}

std::vector<comm::Message> Executor::messages(const std::vector<plan::Run>& runs,
                                              std::uint32_t wave) const {
  std::vector<comm::Message> list;
  list.reserve(runs.size());
  for (const plan::Run& run : runs) list.push_back({run.peer, address(run, wave), run.bytes});
  return list;
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

void Executor::finish_wave(std::uint32_t wave) {
  if (options_.on_progress) progress_.bytes += plan::wave_bytes(schedule_, wave);
  ++progress_.wave;
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
