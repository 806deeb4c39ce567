#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
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
#include "device/host/host_device.hpp"
#include "io/policy.hpp"
#include "probe/trials.hpp"

namespace safeshuffle::probing {
namespace {

/// Writes to the slabs, with which all ranks do the same.
std::function<std::string()> touching_slabs(ProbeRig& rig) {
  return [&rig] {
    rig.touch_slabs();
    return std::string();
  };
}

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

Run run_packing(ProbeRig& rig, const PackItem& item) {
  Run run;
  run.measure([&] {
    while (run.bytes < rig.moved_bytes) {
      pack(rig, item);
      run.bytes += item.rows * item.row_bytes;
    }
    rig.await_queue();
  });
  return run;
}

/// The ring of pinned memory, emptied by copies onto the device, with nothing read into it.
class StagingTrial {
 public:
  explicit StagingTrial(ProbeRig& rig) : rig_(rig) {}

  std::string prepare() {
    slot_bytes_ = std::min(rig_.reader.chunk, rig_.slabs->bytes);
    core::run_on(rig_.reader_cpus, [&] {
      staging_ = rig_.comm.device_handle()->make_staging(slot_bytes_,
                                                         io::ring_slots(rig_.reader, slot_bytes_));
    });
    rig_.touch_slabs();
    return {};
  }

  Run run() {
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

  ProbeRig& rig_;
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

Run run_exchanges(ProbeRig& rig) {
  constexpr int waves = 4;
  Run run;
  run.measure([&] {
    for (int wave = 0; wave < waves; ++wave) {
      comm::Exchange exchange = between_all(rig);
      for (const comm::Message& message : exchange.sends) run.bytes += message.bytes;
      run_exchange(rig, std::move(exchange));
    }
  });
  return run;
}

/// What waves take besides moving their data.
Run run_waves(ProbeRig& rig) {
  PackItem page{.rows = 1, .row_bytes = core::page_bytes};
  page.source_stride = page.destination_stride = page.row_bytes;
  Run run;
  run.times = 16;
  run.measure([&] {
    for (std::uint32_t wave = 0; wave < run.times; ++wave) {
      pack(rig, page);
      run_exchange(rig, {});
    }
    rig.await_queue();
  });
  return run;
}

}  // namespace

unsigned packing_threads() {
  return static_cast<unsigned>(device::HostDevice::default_threads());
}

void add_move_trials(ProbeRig& rig, Trials& trials) {
  const auto touch = touching_slabs(rig);
  const auto add_packing = [&](const char* name, DType from, DType to) {
    const PackItem item = every_second_row(rig.slabs->bytes, from, to);
    trials.push_back(
        {.name = name, .prepare = touch, .run = [&rig, item] { return run_packing(rig, item); }});
  };
  add_packing("pack", DType::U8, DType::U8);
  add_packing("pack_convert", DType::BF16, DType::F16);
  if (rig.comm.device() == DeviceKind::cuda) {
    const auto staging = std::make_shared<StagingTrial>(rig);
    trials.push_back({.name = "host_to_device",
                      .prepare = [staging] { return staging->prepare(); },
                      .run = [staging] { return staging->run(); }});
  }
  if (rig.comm.size() > 1) {
    trials.push_back({.name = "exchange", .is_collective = true, .prepare = touch, .run = [&rig] {
                        return run_exchanges(rig);
                      }});
  }
  trials.push_back(
      {.name = "wave", .is_time = true, .is_collective = true, .prepare = touch, .run = [&rig] {
         return run_waves(rig);
       }});
}

void connect(ProbeRig& rig) {
  const auto pending = rig.comm.transport().connect(*rig.queue);
  if (!pending) return;
  comm::await(*pending, rig.comm.control(), "connecting over " + rig.comm.transport().name(),
              rig.timeout, [] {});
}

}  // namespace safeshuffle::probing
