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
  /// Allocates everything the load needs. `sharers`: see ReadingPlace. Throws MemoryError.
  Executor(const Plan& plan, const Communicator& comm, const Options& options, unsigned sharers,
           PhaseClock& clock);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Runs all waves. Collective. A failure to read or to pack, or of the progress callback, is not
  /// thrown: the rank keeps taking part, with bytes that nobody will see, so that no other rank
  /// waits for it in vain; see `error`. Throws TransportError or TimeoutError.
  void run();

  /// The first failure that was not thrown.
  const std::optional<ErrorRecord>& error() const noexcept { return error_; }

  /// The finished tensors, placed by Schedule::arena_offsets.
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
    plan::Outgoing outgoing;
    plan::Incoming incoming;
  };
  struct WaveBatch {
    std::uint32_t wave = 0;
    std::optional<io::BatchId> batch;  ///< empty if nothing is read
    core::Clock::time_point begin;
  };

  void make_reader(const io::ReaderOptions& options, std::uint64_t slab_bytes);
  void run_waves();
  void connect();
  WaveBatch start_reading(std::uint32_t wave);
  void await_reading(const WaveBatch& reading);
  [[noreturn]] void fail_stalled(std::uint32_t wave) const;
  void settle_reader();
  void abandon_reader();
  void note_failure(const ErrorRecord& error);
  template <class Step>
  void attempt(const Step& step);
  void check_fallbacks();
  Transfers plan_transfers(std::uint32_t wave);
  void pack(const Transfers& transfers, std::uint32_t wave);
  void exchange(const Transfers& transfers, std::uint32_t wave);
  comm::Exchange messages(const Transfers& transfers, std::uint32_t wave) const;
  std::byte* address(const plan::Run& run, std::uint32_t wave) const;
  void finish_wave();
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
  core::Deadline deadline_;
  std::optional<io::BatchId> last_batch_;
  std::optional<ErrorRecord> error_;
  Progress progress_;
  std::vector<std::uint64_t> bytes_after_wave_;  // over all ranks
  core::Clock::time_point last_report_;
};

}  // namespace safeshuffle::pipeline
