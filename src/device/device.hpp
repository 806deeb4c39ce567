// What the pipeline needs of a device: memory, an ordered queue, packing, and staging, the way by
// which file data reaches device memory. Nothing above this interface knows which device it is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "safeshuffle/device.hpp"

#include "core/cpus.hpp"
#include "core/pack_item.hpp"

namespace safeshuffle::device {

class CudaDevice;

/// Source bytes of a pack that are not all in memory. Thread-safe.
class PackSource {
 public:
  virtual ~PackSource() = default;

  /// Fills `to` with the source's bytes from `offset` on. Throws IoError.
  virtual void read(std::uint64_t offset, std::span<std::byte> to) const = 0;

  /// The bytes from `offset` on, if they are all in memory, one after the other; else null.
  virtual const std::byte* view(std::uint64_t /*offset*/, std::uint64_t /*bytes*/) const {
    return nullptr;
  }
};

/// The buffers of one pack: the source, usually a slab, is read, the two targets are written.
struct PackBuffers {
  const std::byte* source = nullptr;
  std::byte* arena = nullptr;
  std::byte* pack_buffer = nullptr;
  const PackSource* reads = nullptr;  ///< if not null, instead of `source`; see reads_to_pack
};

/// A place between two pieces of a queue's work.
class QueueMark {
 public:
  virtual ~QueueMark() = default;

  /// Seconds of the queue's work from here to a later mark of the same queue, which has come there.
  /// Throws TransportError.
  virtual double seconds_until(const QueueMark& later) const = 0;
};

/// Work in order. Not thread-safe; used by the loading thread only.
class Queue {
 public:
  virtual ~Queue() = default;

  /// Whether everything enqueued is done. Throws TransportError if the device failed.
  virtual bool idle() = 0;

  /// Behind what has been enqueued, for a timeline. Null if the work of the queue is done when it
  /// is enqueued. Throws TransportError.
  virtual std::unique_ptr<QueueMark> mark() { return nullptr; }

  /// What is enqueued from now on waits for what the caller's stream, if the device has been given
  /// one, has got by now; so does a new queue. Throws TransportError; ConfigError while that stream
  /// is captured into a graph.
  virtual void follow_caller() {}

  /// The stream behind it (cudaStream_t) for transports that enqueue work of their own; null if it
  /// has none.
  virtual void* native_handle() const noexcept { return nullptr; }

  /// What was enqueued may never end. Whatever was made through the same device is kept until the
  /// process ends, since giving it back could wait for ever.
  virtual void abandon() noexcept {}
};

/// Packs on the queue it was made for; must live until that is idle. Not thread-safe.
class Packer {
 public:
  virtual ~Packer() = default;

  /// Enqueues one pass over the table; may return before it is done. The table may be freed on
  /// return, the buffers must live until the queue is idle. Throws TransportError, and what
  /// PackBuffers::reads throws.
  virtual void pack(std::span<const PackItem> items, const PackBuffers& buffers) = 0;

  /// Enqueues zeros into `rows` rows of `row_bytes`, `stride` bytes apart; all > 0. Throws
  /// TransportError.
  virtual void zero(std::byte* destination, std::uint64_t rows, std::uint64_t row_bytes,
                    std::uint64_t stride) = 0;
};

/// Host memory for one piece of file data on its way to `device_destination`.
struct StagingSlot {
  /// Bytes of a slot, counted from its beginning.
  struct Part {
    std::size_t begin = 0;
    std::size_t end = 0;

    bool empty() const noexcept { return begin == end; }
  };

  /// What is not on the device yet: all but `on_device`. One of the two may be empty.
  std::array<Part, 2> parts_to_copy() const noexcept {
    return {{{0, on_device.begin}, {on_device.end, host.size()}}};
  }

  bool is_on_device() const noexcept {
    const auto parts = parts_to_copy();
    return parts[0].empty() && parts[1].empty();
  }

  std::span<std::byte> host;  ///< what the reader fills
  std::byte* device_destination = nullptr;
  std::size_t index = 0;     ///< private to the Staging that made it
  bool whole_pages = false;  ///< the rest of the first and the last page of `host` is free, too
  Part on_device = {};       ///< was read into device memory, and is not in `host`
};

/// A file that can be read straight into device memory. Thread-safe.
class DeviceFile {
 public:
  virtual ~DeviceFile() = default;

  /// Reads from byte `offset` on into the beginning of `to`, which is device memory; offset, size
  /// and address are multiples of core::page_bytes. Returns the number of bytes, which are on the
  /// device then; 0 only at the end. Throws IoError with errno, or the library's own code.
  virtual std::size_t read_some(std::uint64_t offset, std::span<std::byte> to) const = 0;
};

/// Reads files straight into the memory of one device. Thread-safe.
class DeviceReads {
 public:
  virtual ~DeviceReads() = default;

  /// `descriptor` bypasses the page cache (O_DIRECT) and is closed after the result is destroyed,
  /// which comes before this. Throws IoError with the reason if the file cannot be read so.
  virtual std::unique_ptr<DeviceFile> open(int descriptor) = 0;

  /// Why the data passes through host memory nevertheless; empty if that is not known.
  virtual std::string detour() const { return {}; }
};

/// The way of file data into device memory. No call blocks. Thread-safe. A slot becomes free by
/// what its user does: by `discard`, and after `commit` when `landed` is called.
class Staging {
 public:
  virtual ~Staging() = default;

  /// A slot of `bytes` <= the staging's slot size, `skip` < core::page_bytes behind a multiple of
  /// that; nothing if none is free. A device whose memory the host can write hands out the
  /// destination itself, wherever that lies. Throws TransportError if the device failed.
  virtual std::optional<StagingSlot> try_acquire(std::byte* device_destination, std::size_t bytes,
                                                 std::size_t skip) = 0;

  /// What reads files without slots, mostly into `memory`, which must outlive the result. Throws
  /// IoError with the reason if nothing can.
  virtual std::unique_ptr<DeviceReads> make_device_reads(
      std::span<const std::span<std::byte>> memory);

  /// Starts the transfer of a filled slot, but for what is on the device; `landed` is called, on
  /// any thread, possibly before this returns, once the slot is free again and the data is in
  /// device memory, or the device failed. It must not throw. Throws TransportError; the slot is
  /// then free and `landed` is not called.
  virtual void commit(StagingSlot slot, std::function<void()> landed) = 0;

  /// Gives a slot back without transfer.
  virtual void discard(StagingSlot slot) noexcept = 0;

  /// Page-locked bytes held.
  virtual std::uint64_t pinned_bytes() const noexcept = 0;
};

/// One device. Thread-safe; shared by everything that holds memory on it.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const noexcept = 0;

  /// Itself, for what only GPUs have; null for others.
  virtual CudaDevice* as_cuda() noexcept { return nullptr; }

  /// Of a GPU; 0 on the host.
  virtual int ordinal() const noexcept { return 0; }

  /// For reports, such as "host" or "NVIDIA H200 at 0000:1B:00.0".
  virtual std::string description() const = 0;

  /// Of `cpus`, those near the device; empty if none are nearer than others.
  virtual core::CpuSet near_cpus(const core::CpuSet& /*cpus*/) const { return {}; }

  /// Memory aligned to core::page_bytes, uninitialised, `bytes` > 0. The owner may outlive the
  /// handle it was allocated through. Throws MemoryError.
  virtual std::shared_ptr<std::byte> allocate(std::uint64_t bytes) = 0;

  /// Whether memory of a caller is memory of this device, as far as can be known. Throws
  /// TransportError.
  virtual bool holds(const std::byte* /*memory*/) const { return true; }

  /// A hint: all of that memory of a caller is about to be written.
  virtual void expect_writes(std::byte* /*memory*/, std::uint64_t /*bytes*/) {}

  /// Throws MemoryError; otherwise as Queue::follow_caller.
  virtual std::unique_ptr<Queue> make_queue() = 0;

  /// Allocates all that packing takes. `queue` is of this device and must outlive the packer.
  /// Throws MemoryError, TransportError.
  virtual std::unique_ptr<Packer> make_packer(Queue& queue) = 0;

  /// Whether its packers take a PackSource. They have then read from it when `pack` returns.
  virtual bool reads_to_pack() const noexcept { return false; }

  /// Device memory that a packer holds, in bytes; as much again is pinned.
  virtual std::uint64_t packer_bytes() const noexcept { return 0; }

  /// `slots` pieces of up to `slot_bytes` may be on their way at once. Throws MemoryError,
  /// TransportError.
  virtual std::unique_ptr<Staging> make_staging(std::size_t slot_bytes, std::size_t slots) = 0;

  /// Copies and waits. Throws TransportError.
  virtual void copy_to_host(std::byte* destination, const std::byte* source,
                            std::uint64_t bytes) = 0;
};

/// Opens a device for the rank at position `local_rank` of its node. `automatic` takes a GPU if
/// this process can use one. Throws ConfigError, TransportError.
std::shared_ptr<Device> open_device(const safeshuffle::Device& which, std::uint32_t local_rank = 0);

/// Why this process can use no GPU, in a few words; empty if it can. Creates no context.
std::string gpu_obstacle();

/// Identifies the GPU that `open_device(Device::cuda(ordinal), local_rank)` would open: equal in
/// all processes of the node that mean the same one. Creates no context. Throws ConfigError,
/// TransportError.
std::string gpu_address(int ordinal, std::uint32_t local_rank);

}  // namespace safeshuffle::device
