#include "probe/moves.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "safeshuffle/error.hpp"

#include "comm/await.hpp"
#include "core/arithmetic.hpp"
#include "core/backoff.hpp"
#include "core/deadline.hpp"
#include "core/pack_item.hpp"
#include "core/page.hpp"
#include "core/thread_pool.hpp"
#include "device/host/host_device.hpp"
#include "device/host/memory.hpp"
#include "io/policy.hpp"

namespace safeshuffle::probing {
namespace {

using Of = Measurement::Of;

/// Copies host memory, as the host device does: to memory that is in use, or newly allocated.
class MemoryTrial final : public Trial {
 public:
  MemoryTrial(ProbeRig& rig, std::string name, unsigned threads, bool fresh)
      : Trial(std::move(name), Of::each_rank),
        bytes_(rig.memory_bytes),
        fresh_(fresh),
        pool_(threads - 1) {}

  std::string prepare() override {
    source_ = device::allocate_written_pages(bytes_);
    target_ = device::allocate_written_pages(bytes_);
    return {};
  }

  Run run() override {
    if (fresh_) renew_target();
    Run run;
    run.bytes = bytes_;
    run.measure([this] {
      pool_.parallel_for(core::ceil_div(bytes_, part), [this](std::size_t index) {
        const std::uint64_t begin = index * part;
        std::memcpy(target_.get() + begin, source_.get() + begin, std::min(part, bytes_ - begin));
      });
    });
    source_.reset();
    target_.reset();
    return run;
  }

 private:
  static constexpr std::uint64_t part = device::huge_page_bytes;

  // Gets the memory anew that it had, when all ranks have theirs: before, another would have
  // written what this one gave back.
  void renew_target() {
    target_.reset();
    target_ = device::allocate_pages(bytes_);
  }

  const std::uint64_t bytes_;
  const bool fresh_;
  core::ThreadPool pool_;
  std::shared_ptr<std::byte> source_;
  std::shared_ptr<std::byte> target_;
};

/// What all ranks do with their slabs.
class SlabTrial : public Trial {
 public:
  SlabTrial(ProbeRig& rig, std::string name) : Trial(std::move(name), Of::each_rank), rig_(rig) {}

  std::string prepare() override {
    rig_.touch_slabs();
    return {};
  }

 protected:
  ProbeRig& rig_;
};

/// Passes over the slabs that are enqueued on the device.
class PassTrial final : public SlabTrial {
 public:
  /// `pass` moves `bytes`.
  PassTrial(ProbeRig& rig, std::string name, std::uint64_t bytes, std::function<void()> pass)
      : SlabTrial(rig, std::move(name)), bytes_(bytes), pass_(std::move(pass)) {}

  Run run() override {
    Run run;
    run.measure([&] {
      while (run.bytes < rig_.moved_bytes) {
        pass_();
        run.bytes += bytes_;
      }
      rig_.await_queue();
    });
    return run;
  }

 private:
  const std::uint64_t bytes_;
  const std::function<void()> pass_;
};

/// Rows of a tensor that is cut in two along its last axis. Llama-2-70B's down_proj, cut into 8,
/// has rows of 7168 bytes.
PackItem every_second_row(std::uint64_t slab_bytes, DType from, DType to) {
  constexpr std::uint64_t row_bytes = 7168;
  PackItem item{.source = 1, .row_bytes = row_bytes, .from = from, .to = to};
  item.rows = std::max<std::uint64_t>((slab_bytes - 1) / (2 * row_bytes), 1);
  item.source_stride = 2 * row_bytes;
  item.destination_stride = destination_row_bytes(item);
  return item;
}

void pack(ProbeRig& rig, const PackItem& item) {
  rig.packer->pack({&item, 1}, {rig.slabs->memory[0].get(), rig.slabs->memory[1].get(), nullptr});
}

void add_pack_trial(ProbeRig& rig, const char* name, DType from, DType to, Trials& trials) {
  const PackItem item = every_second_row(rig.slabs->bytes, from, to);
  trials.push_back(std::make_unique<PassTrial>(rig, name, item.rows * item.row_bytes,
                                               [&rig, item] { pack(rig, item); }));
}

void add_device_copy_trial(ProbeRig& rig, Trials& trials) {
  trials.push_back(std::make_unique<PassTrial>(rig, "device_copy", rig.window, [&rig] {
    rig.packer->copy(rig.slabs->memory[1].get(), rig.slabs->memory[0].get(), rig.window);
  }));
}

/// The ring of pinned memory, emptied by copies onto the device, with nothing read into it.
class StagingTrial final : public SlabTrial {
 public:
  explicit StagingTrial(ProbeRig& rig) : SlabTrial(rig, "host_to_device") {}

  std::string prepare() override {
    slot_bytes_ = std::min(rig_.reader.chunk, rig_.slabs->bytes);
    core::run_on(rig_.reader_cpus, [&] {
      staging_ = rig_.comm.device_handle()->make_staging(slot_bytes_,
                                                         io::ring_slots(rig_.reader, slot_bytes_));
    });
    return SlabTrial::prepare();
  }

  Run run() override {
    Run run;
    run.measure([&] {
      std::uint64_t offset = 0;
      while (run.bytes < rig_.moved_bytes) {
        if (offset + slot_bytes_ > rig_.slabs->bytes) offset = 0;
        copy_slot(rig_.slabs->memory[0].get() + offset);
        offset += slot_bytes_;
        run.bytes += slot_bytes_;
      }
      await([&] { return landed_ == run.bytes; });
    });
    landed_ = 0;
    staging_.reset();
    return run;
  }

 private:
  void copy_slot(std::byte* destination) {
    std::optional<device::StagingSlot> slot;
    await([&] { return (slot = staging_->try_acquire(destination, slot_bytes_, 0)).has_value(); });
    staging_->commit(*slot, [this] { landed_ += slot_bytes_; });
  }

  template <class Condition>
  void await(const Condition& condition) const {
    const core::Deadline deadline(rig_.timeout);
    core::Backoff backoff;
    while (!condition()) {
      if (deadline.expired()) throw TimeoutError("copying onto the device has not ended");
      backoff.pause();
    }
  }

  std::uint64_t slot_bytes_ = 0;
  std::atomic<std::uint64_t> landed_{0};
  std::unique_ptr<device::Staging> staging_;
};

void run_exchange(ProbeRig& rig, comm::Exchange exchange) {
  exchange.keep_alive = rig.slabs;
  const auto pending = rig.comm.transport().exchange(std::move(exchange), *rig.queue);
  comm::await(*pending, rig.comm.control(), "an exchange", rig.timeout, [] {});
}

/// What each rank sends and receives in a wave: the same with each peer.
comm::Exchange between_all(const ProbeRig& rig) {
  const std::uint32_t world = rig.comm.size();
  const std::uint64_t part = core::align_down(rig.window / world, core::page_bytes);
  comm::Exchange exchange;
  for (std::uint32_t peer = 0; peer < world && part != 0; ++peer) {
    if (peer == rig.comm.rank()) continue;
    exchange.sends.push_back({peer, rig.slabs->memory[0].get() + peer * part, part});
    exchange.receives.push_back({peer, rig.slabs->memory[1].get() + peer * part, part});
  }
  return exchange;
}

class ExchangeTrial final : public SlabTrial {
 public:
  explicit ExchangeTrial(ProbeRig& rig) : SlabTrial(rig, "exchange") {}

  bool is_collective() const noexcept override { return true; }

  Run run() override {
    constexpr int waves = 4;
    Run run;
    run.measure([&] {
      for (int wave = 0; wave < waves; ++wave) {
        comm::Exchange exchange = between_all(rig_);
        for (const comm::Message& message : exchange.sends) run.bytes += message.bytes;
        run_exchange(rig_, std::move(exchange));
      }
    });
    return run;
  }
};

/// What a wave takes besides moving its data.
class WaveTrial final : public SlabTrial {
 public:
  explicit WaveTrial(ProbeRig& rig) : SlabTrial(rig, "wave") {}

  bool is_time() const noexcept override { return true; }
  bool is_collective() const noexcept override { return true; }

  Run run() override {
    PackItem page{.rows = 1, .row_bytes = core::page_bytes};
    page.source_stride = page.destination_stride = page.row_bytes;
    Run run;
    run.times = 16;
    run.measure([&] {
      for (std::uint32_t wave = 0; wave < run.times; ++wave) {
        pack(rig_, page);
        run_exchange(rig_, {});
      }
      rig_.await_queue();
    });
    return run;
  }
};

}  // namespace

unsigned copy_threads() {
  return static_cast<unsigned>(device::HostDevice::default_threads());
}

void add_move_trials(ProbeRig& rig, Trials& trials) {
  const auto add_memory = [&](const char* name, unsigned threads, bool fresh) {
    trials.push_back(std::make_unique<MemoryTrial>(rig, name, threads, fresh));
  };
  add_memory("memory_copy_one_thread", 1, false);
  add_memory("memory_copy_one_thread_fresh", 1, true);
  add_memory("memory_copy", copy_threads(), false);
  add_memory("memory_copy_fresh", copy_threads(), true);
  add_pack_trial(rig, "pack", DType::U8, DType::U8, trials);
  add_pack_trial(rig, "pack_convert", DType::BF16, DType::F16, trials);
  if (rig.comm.device() == DeviceKind::cuda) {
    trials.push_back(std::make_unique<StagingTrial>(rig));
    add_device_copy_trial(rig, trials);
  }
  if (rig.comm.size() > 1) trials.push_back(std::make_unique<ExchangeTrial>(rig));
  trials.push_back(std::make_unique<WaveTrial>(rig));
}

void connect(ProbeRig& rig) {
  const auto pending = rig.comm.transport().connect(*rig.queue);
  if (!pending) return;
  comm::await(*pending, rig.comm.control(), "connecting over " + rig.comm.transport().name(),
              rig.timeout, [] {});
}

}  // namespace safeshuffle::probing
