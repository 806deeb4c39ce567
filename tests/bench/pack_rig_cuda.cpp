// Measures with the GPU's own clock: events around several launches in a row, each on buffers that
// the launches in between have driven out of the L2 cache.
#include <array>
#include <cuda_runtime_api.h>
#include <stdexcept>
#include <vector>

#include "bench/pack_rig.hpp"
#include "core/deadline.hpp"
#include "device/cuda/pack_kernel.hpp"
#include "device/cuda/pack_table.hpp"

namespace safeshuffle::bench {
namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

#define CHECKED(call) check(call, #call)

std::shared_ptr<std::byte> allocate(std::uint64_t bytes) {
  void* memory = nullptr;
  CHECKED(cudaMalloc(&memory, bytes));
  return {static_cast<std::byte*>(memory), [](std::byte* owned) { cudaFree(owned); }};
}

struct Buffers {
  std::shared_ptr<std::byte> slab;
  std::shared_ptr<std::byte> arena;
};

Buffers make_buffers(std::uint64_t bytes) {
  const Buffers buffers{allocate(bytes), allocate(bytes)};
  CHECKED(cudaMemsetAsync(buffers.slab.get(), 0x3c, bytes, nullptr));
  return buffers;
}

/// A pack table in device memory.
struct Table {
  std::shared_ptr<std::byte> memory;
  std::uint64_t tiles = 0;

  const device::PackEntry* entries() const {
    return reinterpret_cast<const device::PackEntry*>(memory.get());
  }
};

Table make_table(std::span<const PackItem> items, const Buffers& buffers) {
  std::vector<device::PackEntry> entries(items.size());
  const std::size_t bytes = entries.size() * sizeof(device::PackEntry);
  Table table{allocate(bytes)};
  table.tiles =
      device::make_pack_entries(items, {buffers.slab.get(), buffers.arena.get(), nullptr}, entries);
  CHECKED(cudaMemcpy(table.memory.get(), entries.data(), bytes, cudaMemcpyHostToDevice));
  return table;
}

class Event {
 public:
  Event() { CHECKED(cudaEventCreateWithFlags(&event_, cudaEventDefault)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Works on the default stream.
class CudaRig final : public PackRig {
 public:
  explicit CudaRig(std::uint64_t bytes) {
    for (Buffers& each : buffers_) each = make_buffers(bytes + 4096);
    raise_clock(bytes);
  }

  std::string description() const override {
    cudaDeviceProp properties{};
    CHECKED(cudaGetDeviceProperties(&properties, 0));
    return properties.name;
  }

  std::string copy_name() const override { return "copy on device"; }

  int repetitions() const override { return 31; }

  double pack(std::span<const PackItem> items) override {
    const auto count = static_cast<std::uint32_t>(items.size());
    std::array<Table, pairs> tables;
    for (std::size_t i = 0; i < pairs; ++i) tables[i] = make_table(items, buffers_[i]);
    return seconds([&](std::size_t i) {
      CHECKED(device::launch_pack(tables[i].entries(), count, tables[i].tiles, nullptr));
    });
  }

  double copy(std::uint64_t bytes) override {
    return seconds([&](std::size_t i) {
      CHECKED(cudaMemcpyAsync(buffers_[i].arena.get(), buffers_[i].slab.get(), bytes,
                              cudaMemcpyDeviceToDevice, nullptr));
    });
  }

 private:
  static constexpr std::size_t pairs = 4;     ///< of buffers
  static constexpr std::size_t launches = 8;  ///< in a row
  static constexpr double ramp_seconds = 0.3;

  /// A GPU that was idle runs slowly at first; the first case must not pay for that.
  void raise_clock(std::uint64_t bytes) {
    const auto start = core::Clock::now();
    while (core::seconds_since(start) < ramp_seconds) copy(bytes);
  }

  /// Of one launch; `launch` takes the number of the buffers.
  template <typename Launch>
  double seconds(const Launch& launch) {
    CHECKED(cudaEventRecord(start_.get(), nullptr));
    for (std::size_t i = 0; i < launches; ++i) launch(i % pairs);
    CHECKED(cudaEventRecord(end_.get(), nullptr));
    CHECKED(cudaEventSynchronize(end_.get()));
    float milliseconds = 0;
    CHECKED(cudaEventElapsedTime(&milliseconds, start_.get(), end_.get()));
    return static_cast<double>(milliseconds) / 1000 / launches;
  }

  std::array<Buffers, pairs> buffers_;
  Event start_;
  Event end_;
};

}  // namespace

std::unique_ptr<PackRig> make_cuda_rig(std::uint64_t bytes) {
  return std::make_unique<CudaRig>(bytes);
}

}  // namespace safeshuffle::bench
