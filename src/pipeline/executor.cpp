#include "pipeline/executor.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "safeshuffle/error.hpp"

#include "comm/await.hpp"
#include "core/backoff.hpp"
#include "core/error_wire.hpp"
#include "plan/waves.hpp"

namespace safeshuffle::pipeline {

Executor::Executor(Workspace& workspace, const Plan& plan, const plan::LentMemory* lent,
                   unsigned sharers, PhaseClock& clock, const Progress& progress)
    : workspace_(workspace),
      schedule_(plan.schedule()),
      control_(workspace.comm().control()),
      transport_(workspace.comm().transport()),
      options_(workspace.options()),
      timeout_(core::Deadline(options_.timeout).limit()),
      clock_(clock),
      buffers_(workspace.prepare(plan, lent, sharers)),
      queue_(workspace.queue()),
      packer_(workspace.packer()),
      queue_trace_(queue_, clock_),
      reader_(workspace, schedule_, buffers_, clock),
      planner_(schedule_, workspace.comm().rank(), lent),
      progress_(plan, progress, options_.on_progress),
      steps_(schedule_) {
  if (lent != nullptr) await_queue();  // that is, the caller's: reads into place do not follow it
  for (std::uint32_t wave = 0; wave < std::min(schedule_.slabs, schedule_.waves); ++wave) {
    transfers_.push_back(plan_transfers(wave));
  }
}

void Executor::start(std::uint32_t waves) {
  for (; started_ < std::min<std::size_t>(waves, transfers_.size()); ++started_) {
    start_reading(started_, transfers_[started_]);
  }
}

bool Executor::run(Readiness& ready) {
  fill_zeros();
  connect();
  steps_.begin(0, 1);
  for (std::uint32_t wave = 0; wave < schedule_.waves; ++wave) {
    // Its slab is free since the exchange of the wave before: the disk need not wait for this one.
    // All slabs were free at the start.
    if (wave != 0) read_ahead(wave + waves_ahead());
    meanwhile();
    await_reading(wave);
    if (wave == 0) start();
    queue_trace_.begin();
    Transfers& transfers = transfers_.front();
    pack(transfers.items, wave);
    if (!end_together(transfers, wave)) return false;
    unpack(transfers.unpack, wave);
    transfers_.pop_front();
    drop_behind(wave);
    finish_wave(wave, ready);
  }
  await_queue();
  attempt([&] {
    const PhaseScope scope(clock_, Phase::pack);
    queue_trace_.settle([&] { await_queue(); });
  });
  return true;
}

// Like an allocation, it may not run beside NCCL's kernels: what fills memory may be loaded first.
void Executor::fill_zeros() {
  const PhaseScope scope(clock_, Phase::allocate);
  attempt([&] {
    for (const plan::Zeros& zeros : planner_.zeros()) {
      packer_.zero(buffers_->arena.get() + zeros.offset, zeros.rows, zeros.row_bytes, zeros.stride);
    }
  });
}

// Overlaps the first reads, but follows the last allocation: no cudaMalloc may run beside NCCL's
// kernels, and NCCL allocates as well.
void Executor::connect() {
  if (schedule_.waves == 0) return;
  const PhaseScope scope(clock_, Phase::allocate);
  const auto pending = transport_.connect(queue_);
  if (pending)
    comm::await(*pending, control_, "connecting over " + transport_.name(), timeout_, [] {});
}

// Its transfers first: without them a rank could not take part in the wave, so if they cannot be
// made, the others must know before.
void Executor::read_ahead(std::uint32_t wave) {
  if (wave >= schedule_.waves || error_) return;
  attempt([&] {
    transfers_.push_back(plan_transfers(wave));
    start_reading(wave, transfers_.back());
  });
}

void Executor::start_reading(std::uint32_t wave, const Transfers& transfers) {
  if (error_) return;
  const bool may_leave =
      workspace_.comm().device_handle()->reads_to_pack() && !transfers.sends_from_slab;
  attempt([&] { reader_.start(wave, transfers.in_place, may_leave); });
}

void Executor::await_reading(std::uint32_t wave) {
  if (const auto error = reader_.wait(wave, [&] { meanwhile(); })) note_failure(*error);
}

// Nobody needs what would be read now; and the peers wait for this rank.
void Executor::note_failure(const ErrorRecord& error) {
  if (error_) return;
  error_ = error;
  reader_.cancel();
}

template <class Step>
void Executor::attempt(const Step& step) {
  try {
    step();
  } catch (...) {
    note_failure(core::current_error());
  }
}

Executor::Transfers Executor::plan_transfers(std::uint32_t wave) {
  const PhaseScope scope(clock_, Phase::pack);
  plan::Outgoing outgoing = planner_.outgoing(wave);
  plan::Incoming incoming = planner_.incoming(wave);
  auto in_place = plan::take_in_place(outgoing, reader_.in_place_rule());
  return {.in_place = std::move(in_place),
          .items = std::move(outgoing.items),
          .sends_from_slab = std::ranges::find(outgoing.sends, plan::RunMemory::slab,
                                               &plan::Run::memory) != outgoing.sends.end(),
          .exchange = {.sends = messages(outgoing.sends, wave),
                       .receives = messages(incoming.receives, wave),
                       .broadcasts = messages(incoming.broadcasts, wave),
                       .keep_alive = buffers_},
          .relays = {.sends = messages(incoming.relays.sends, wave),
                     .receives = messages(incoming.relays.receives, wave),
                     .broadcasts = {},
                     .keep_alive = buffers_},
          .unpack = std::move(incoming.unpack)};
}

void Executor::pack(const std::vector<PackItem>& items, std::uint32_t wave) {
  const FileSlab* const source = reader_.source();
  const PhaseScope scope(clock_, source == nullptr ? Phase::pack : Phase::read);
  attempt([&] {
    packer_.pack(items, {buffers_->slabs[plan::slab_of(schedule_, wave)].get(),
                         buffers_->arena.get(), buffers_->pack_buffer.get(), source});
    if (!items.empty()) queue_trace_.note("pack", wave);
    if (source == nullptr) return;
    source->check_unchanged(workspace_.source());
    source->note_unread();
  });
  reader_.drop_source();
}

// The next exchange, on the same queue, may write to the landing buffer only afterwards.
void Executor::unpack(const std::vector<PackItem>& items, std::uint32_t wave) {
  if (items.empty()) return;
  const PhaseScope scope(clock_, Phase::pack);
  attempt([&] {
    packer_.pack(items, {landing(), buffers_->arena.get(), nullptr});
    queue_trace_.note("unpack", wave);
  });
}

std::byte* Executor::landing() const {
  return buffers_->pack_buffer.get() + schedule_.ranks[control_.rank()].pack_bytes;
}

// Where no exchange follows: then the slab is free, or all is in place.
void Executor::await_queue() {
  const PhaseScope scope(clock_, Phase::pack);
  const core::Deadline deadline(timeout_);
  core::Backoff backoff;
  while (!queue_.idle()) {
    if (deadline.expired()) {
      queue_.abandon();
      throw TimeoutError("work on a wave has not ended");
    }
    backoff.pause();
  }
}

// Not before all ranks have read: another may be about to read what is next to this one's bytes.
void Executor::drop_behind(std::uint32_t wave) {
  if (!options_.drop_cache_behind || !ended_together_) return;
  const PhaseScope scope(clock_, Phase::read);
  attempt([&] {
    for (; dropped_waves_ <= wave; ++dropped_waves_) reader_.drop_cached(dropped_waves_);
    if (dropped_waves_ == schedule_.waves) reader_.drop_cached_files();
  });
}

// Whether no rank is known to have failed. One that has failed tells the others when they wait for
// it next.
bool Executor::end_together(Transfers& transfers, std::uint32_t wave) {
  ended_together_ = false;
  if (!error_ && !steps_.ends_with(wave)) {
    await_queue();
    return true;
  }
  ended_together_ = exchange(transfers, wave);
  return ended_together_;
}

// Whether no rank has failed. What is relayed must have arrived, so replicas pass it on afterwards.
// A rank that reads slices may be several waves behind, and begin only now to wait for its storage.
// So that it is the first to give up, and tells the others why, these wait for twice the time-out.
bool Executor::exchange(Transfers& transfers, std::uint32_t wave) {
  const PhaseScope scope(clock_, Phase::exchange);
  const std::string of_wave = "of wave " + std::to_string(wave);
  const auto timeout = plan::is_exchanged(schedule_, wave) ? timeout_ : 2 * timeout_;
  auto least = exchange(std::move(transfers.exchange), "the exchange " + of_wave, timeout);
  if (schedule_.replicas != 1 && least != 0) {
    least =
        exchange(std::move(transfers.relays), "the exchange between replicas " + of_wave, timeout);
  }
  if (least == 0) return false;
  steps_.begin(wave + 1, least);
  attempt([&] { queue_trace_.note("exchange", wave); });
  return true;
}

std::uint8_t Executor::exchange(comm::Exchange exchange, const std::string& what,
                                std::chrono::milliseconds timeout) {
  exchange.vote = error_ ? 0 : steps_.vote();
  exchange.timeout = timeout;
  const auto pending = transport_.exchange(std::move(exchange), queue_);
  comm::await(*pending, control_, what, timeout, [this] { meanwhile(); });
  return pending->least_vote();
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
    case plan::RunMemory::landing:
      return landing() + run.offset;
    case plan::RunMemory::pack_buffer:
      return buffers_->pack_buffer.get() + run.offset;
    case plan::RunMemory::slab:
      break;
  }
  return buffers_->slabs[plan::slab_of(schedule_, wave)].get() + run.offset;
}

void Executor::finish_wave(std::uint32_t wave, Readiness& ready) {
  ready.note(wave, clock_.elapsed());
  if (!error_) attempt([&] { progress_.finish(wave); });
  if (ready.tells()) tell(wave, ready);
}

// What is unpacked is there once the queue is idle. All ranks begin an exchange, and so have what
// came before it, before it is done on any.
void Executor::tell(std::uint32_t wave, Readiness& ready) {
  await_queue();
  if (error_) return;
  attempt([&] {
    if (ended_together_) ready.is_everywhere(wave);
    ready.is_here(wave);
  });
}

// Whenever this rank waits: a request to cancel counts as its failure.
void Executor::meanwhile() {
  if (error_) return;
  attempt([&] {
    control_.check_cancelled();
    progress_.meanwhile();
  });
}

}  // namespace safeshuffle::pipeline
