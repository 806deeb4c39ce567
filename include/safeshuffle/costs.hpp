// What the steps of a load cost on a machine. Plain data, made of what `probe` (probe.hpp)
// measured, or of defaults.
#pragma once

#include <string>
#include <string_view>

#include "safeshuffle/device.hpp"

namespace safeshuffle {

/// Rates are in bytes per second, times in seconds. 0: not known. "One rank" is measured while all
/// others of the group are idle, "each rank" while all do the same. The names are those of the
/// object `costs` in a probe (docs/probe.md).
struct Costs {
  /// Reading files that are not in the page cache, bypassing it (O_DIRECT): one rank, and all ranks
  /// of a node together. Measured with the loader's reader into device memory.
  double read_cold_direct_rank = 0;
  double read_cold_direct_node = 0;

  /// The same, through the page cache.
  double read_cold_buffered_rank = 0;
  double read_cold_buffered_node = 0;

  /// Latency of a server: the time in which one rank alone gets a page of an object, by a request
  /// that waits for no other. URLs only.
  double request_seconds = 0;

  /// Reading files that are in the page cache.
  double read_warm_rank = 0;
  double read_warm_node = 0;

  /// Providing host memory on first touch, each rank: what reading files that are in the page cache
  /// into newly allocated memory takes longer than into memory that is in use. Loads pay it for
  /// their arena, on the host device only.
  double first_touch = 0;

  /// Packing, each rank, per byte of the slab that is read: rows of 7168 bytes, every second one,
  /// from a misaligned slab; and the same with conversion from BF16 to F16.
  double pack = 0;
  double pack_convert = 0;

  /// Copying from the ring of pinned memory to the GPU, each rank. GPUs only.
  double host_to_device = 0;

  /// Exchanging between all ranks, the same with each peer: bytes that each rank sends. Several
  /// ranks only.
  double exchange = 0;

  /// Time that one wave takes besides moving its data, each rank: packing a single page, and
  /// exchanging nothing.
  double wave_seconds = 0;

  bool operator==(const Costs&) const = default;
};

/// What the steps of a load take, in seconds: of each, what the rank takes that takes longest for
/// it. Steps overlap, so the total is less than their sum.
struct StepSeconds {
  double open = 0;            ///< opening the files
  double allocate = 0;        ///< providing the memory of the tensors, on first touch; on the host
  double read = 0;            ///< from storage and from the page cache
  double host_to_device = 0;  ///< GPUs only
  double pack = 0;            ///< on the host, of what is not packed as it is read
  double exchange = 0;        ///< sending and receiving
  double waves = 0;           ///< what waves take besides moving data
  double total = 0;           ///< from the first read to the last tensor
};

/// Estimates for a machine that has not been probed: a server with one local NVMe disk and memory
/// of several channels; with GPUs, PCIe 5 and NVLink. Its rates of buffered reads also stand for
/// network filesystems, which are read through the page cache. For planning only: no ceiling in a
/// report is one of them. `automatic` counts as the host.
Costs default_costs(DeviceKind device) noexcept;

/// The same for objects at URLs: only what it takes to read them.
Costs default_remote_costs() noexcept;

/// `measured`, with the defaults of the device for what is not known. Without GPUs, costs of GPUs
/// stay unknown.
Costs with_defaults(Costs measured, DeviceKind device) noexcept;
Costs with_defaults(Costs measured, const Costs& defaults) noexcept;

/// The costs in the JSON text of a probe; what was not measured is not known. Pure. Throws
/// ConfigError, which names `name` (usually a path) as the file, and the field, or line and column,
/// if the text is not valid JSON, has a key twice, is not a probe, has another schema version, or
/// if a cost is not a positive finite number. Unknown fields are ignored.
Costs costs_from_probe(std::string_view json, const std::string& name = "probe");

}  // namespace safeshuffle
