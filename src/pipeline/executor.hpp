// Executes a plan: reads as many waves ahead as there are free slabs, while a wave is packed and
// exchanged.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "safeshuffle/options.hpp"
#include "safeshuffle/plan.hpp"

#include "comm/exchange/transport.hpp"
#include "pipeline/load_progress.hpp"
#include "pipeline/phase_clock.hpp"
#include "pipeline/queue_trace.hpp"
#include "pipeline/readiness.hpp"
#include "pipeline/steps.hpp"
#include "pipeline/wave_reader.hpp"
#include "pipeline/workspace.hpp"
#include "plan/transfers.hpp"

namespace safeshuffle::pipeline {

/// One load of one rank. Used by the loading thread; construct, run once, then ask.
class Executor {
 public:
  /// Prepares the workspace, which must outlive it, as `plan`, `lent` and `clock` must. `lent`:
  /// what this rank has lent, if the plan fills that; else null. `sharers`: see io::ReadingPlace.
  /// `progress`: see Origin. Throws MemoryError, PlanError, and as Workspace::prepare.
  Executor(Workspace& workspace, const Plan& plan, const plan::LentMemory* lent, unsigned sharers,
           PhaseClock& clock, const Progress& progress);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Begins to read so many waves, at most one for each slab; may be called again for more. A
  /// failure is not thrown, as by `run`.
  void start(std::uint32_t waves = plan::slabs_per_rank);

  /// Runs all waves, once the first one is started; the others then are when that has been read.
  /// Collective. A failure to read or to pack, or of a callback, is not thrown: the rank completes
  /// the exchange in progress, with bytes that nobody will see, and tells the others with it. All
  /// ranks stop after that exchange, and the result is false; see `error`. Throws TransportError or
  /// TimeoutError.
  bool run(Readiness& ready);

  /// The first failure of this rank that was not thrown.
  const std::optional<ErrorRecord>& error() const noexcept { return error_; }

  /// The finished tensors, placed by plan::arena_offsets.
  const std::shared_ptr<std::byte>& arena() const noexcept { return buffers_->arena; }

  /// What was read straight into the arena.
  std::uint64_t in_place_bytes() const noexcept { return reader_.in_place_bytes(); }

 private:
  struct Transfers {
    std::vector<plan::InPlaceBlock> in_place;  // not among the items
    std::vector<PackItem> items;
    bool sends_from_slab = false;
    comm::Exchange exchange;
    comm::Exchange relays;  // between replicas
    std::vector<PackItem> unpack;
  };

  void fill_zeros();
  void connect();
  void read_ahead(std::uint32_t wave);
  void start_reading(std::uint32_t wave, const Transfers& transfers);
  void await_reading(std::uint32_t wave);
  void note_failure(const ErrorRecord& error);
  template <class Step>
  void attempt(const Step& step);
  std::uint32_t waves_ahead() const noexcept { return schedule_.slabs - 1; }
  Transfers plan_transfers(std::uint32_t wave);
  std::vector<comm::Message> messages(const std::vector<plan::Run>& runs, std::uint32_t wave) const;
  void pack(const std::vector<PackItem>& items, std::uint32_t wave);
  void unpack(const std::vector<PackItem>& items, std::uint32_t wave);
  std::byte* landing() const;
  void await_queue();
  void drop_behind(std::uint32_t wave);
  [[nodiscard]] bool end_together(Transfers& transfers, std::uint32_t wave);
  [[nodiscard]] bool exchange(Transfers& transfers, std::uint32_t wave);
  [[nodiscard]] std::uint8_t exchange(comm::Exchange exchange, const std::string& what,
                                      std::chrono::milliseconds timeout);
  std::byte* address(const plan::Run& run, std::uint32_t wave) const;
  void finish_wave(std::uint32_t wave, Readiness& ready);
  void tell(std::uint32_t wave, Readiness& ready);
  void meanwhile();

  Workspace& workspace_;
  const plan::Schedule& schedule_;
  comm::Control& control_;
  comm::Transport& transport_;
  const Options& options_;
  const std::chrono::milliseconds timeout_;
  PhaseClock& clock_;
  const std::shared_ptr<Buffers> buffers_;
  device::Queue& queue_;
  device::Packer& packer_;
  QueueTrace queue_trace_;
  WaveReader reader_;
  plan::TransferPlanner planner_;
  LoadProgress progress_;
  Steps steps_;
  std::uint32_t started_ = 0;        // of the first waves, by `start`
  std::uint32_t dropped_waves_ = 0;  // from the page cache
  bool ended_together_ = false;      // the current wave
  std::deque<Transfers> transfers_;  // of the current wave and those read ahead
  std::optional<ErrorRecord> error_;
};

}  // namespace safeshuffle::pipeline
