// Executes a plan: reads wave w + 1 while wave w is packed and exchanged.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "safeshuffle/communicator.hpp"
#include "safeshuffle/options.hpp"
#include "safeshuffle/plan.hpp"

#include "comm/transport.hpp"
#include "core/cpus.hpp"
#include "core/deadline.hpp"
#include "core/detached_work.hpp"
#include "device/device.hpp"
#include "io/reader.hpp"
#include "pipeline/phase_clock.hpp"
#include "pipeline/reading.hpp"
#include "plan/transfers.hpp"

namespace safeshuffle::pipeline {

/// All device memory of a load. Null where the plan needs none.
struct Buffers {
  std::shared_ptr<std::byte> arena;
  std::array<std::shared_ptr<std::byte>, 2> slabs;
  std::shared_ptr<std::byte> pack_buffer;
};

/// One load of one rank. Used by the loading thread; construct, run once, then ask.
class Executor {
 public:
  /// Allocates everything the load needs. `plan` and `options` must outlive it; `sharers`: see
  /// ReadingPlace; `source` must outlive the process' reads. Throws MemoryError, PlanError.
  Executor(const source::Source& source, const Plan& plan, const Communicator& comm,
           const Options& options, unsigned sharers, PhaseClock& clock);

  /// Ends reads under way, or gives them up after a time, with all memory that they may still use.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Runs all waves. Collective. A failure to read or to pack, or of the progress callback, is not
  /// thrown: the rank takes part in the exchange under way, with bytes that nobody will see, and
  /// tells the others with it. All ranks stop after that exchange; see `error`. Throws
  /// TransportError or TimeoutError.
  void run();

  /// The first failure of this rank that was not thrown.
  const std::optional<ErrorRecord>& error() const noexcept { return error_; }

  /// The finished tensors, placed by plan::arena_offsets.
  const std::shared_ptr<std::byte>& arena() const noexcept { return buffers_->arena; }

  io::IoPath io_path() const { return reader_->path(); }
  double read_busy_seconds() const { return reader_->busy_seconds(); }
  std::uint64_t pinned_bytes() const { return staging_->pinned_bytes(); }

  /// What its reader threads do, for the report.
  struct Reading {
    core::CpuSet cpus;
    unsigned threads = 0;
    std::uint64_t chunk = 0;
  };
  const Reading& reading() const noexcept { return reading_; }

 private:
  struct Transfers {
    std::vector<PackItem> items;
    comm::Exchange exchange;
  };
  /// Whatever a reader thread that hangs may still use.
  struct Abandoned {
    std::optional<core::DetachedWork> threads;
    std::shared_ptr<device::Device> device;
    std::shared_ptr<Buffers> buffers;
    std::unique_ptr<device::Staging> staging;
    std::unique_ptr<io::Reader> reader;
  };
  struct WaveBatch {
    std::uint32_t wave = 0;
    std::optional<io::BatchId> batch;  ///< empty if nothing is read
    core::Clock::time_point begin;
  };

  void make_reader(const source::Source& source, const io::ReaderOptions& options,
                   std::uint64_t slab_bytes);
  void connect();
  WaveBatch start_reading(std::uint32_t wave);
  void await_reading(const WaveBatch& reading);
  void note_stall(std::uint32_t wave);
  void settle_reader() noexcept;
  void abandon_reader() noexcept;
  void note_failure(const ErrorRecord& error);
  template <class Step>
  void attempt(const Step& step);
  void check_fallbacks();
  void prepare_transfers(std::uint32_t wave);
  Transfers plan_transfers(std::uint32_t wave);
  std::vector<comm::Message> messages(const std::vector<plan::Run>& runs, std::uint32_t wave) const;
  void pack(const std::vector<PackItem>& items, std::uint32_t wave);
  [[nodiscard]] bool exchange(comm::Exchange exchange, std::uint32_t wave);
  std::byte* address(const plan::Run& run, std::uint32_t wave) const;
  void finish_wave(std::uint32_t wave);
  void report_if_due();
  void report();

  const plan::Schedule& schedule_;
  comm::Transport& transport_;
  std::shared_ptr<device::Device> device_;
  const Options& options_;
  PhaseClock& clock_;
  // First: throws while a stream is captured, before anything is allocated.
  std::unique_ptr<device::Queue> queue_;
  std::shared_ptr<Buffers> buffers_;
  std::unique_ptr<device::Packer> packer_;
  std::unique_ptr<device::Staging> staging_;
  std::unique_ptr<io::Reader> reader_;
  Reading reading_;
  plan::TransferPlanner planner_;
  plan::Slab slab_;  // scratch
  core::Deadline deadline_;
  std::unique_ptr<Abandoned> abandoned_;  // empty: made beforehand, so that giving up cannot fail
  std::optional<io::BatchId> last_batch_;
  Transfers transfers_;  // of the next wave
  std::optional<ErrorRecord> error_;
  Progress progress_;
  core::Clock::time_point last_report_;
};

}  // namespace safeshuffle::pipeline
