// Options of a load. Every field has a default that is right for most users; each says its unit,
// range and trade-off. Plain data: copy freely.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "safeshuffle/dtype.hpp"

namespace safeshuffle {

/// Which rank reads what. All are deterministic functions of the catalog and the world size.
enum class Assignment : std::uint8_t {
  round_robin,  ///< file i is read by rank i % world
  balanced,     ///< whole files, largest first, each to the rank with the fewest bytes so far
  striped,      ///< every file is cut into `world` ranges of tensors; for few or skewed files
  automatic,    ///< striped if files < ranks or round-robin is badly skewed, else round-robin
};

/// What the plan depends on, besides catalog, placements and world size.
struct PlanOptions {
  Assignment assignment = Assignment::round_robin;

  /// Conversion of floating-point tensors on the way.
  DTypePolicy dtype = DTypePolicy::keep;

  /// Bytes of file data one rank contributes per wave, at least 4 KiB. Larger windows mean fewer,
  /// larger messages; device memory grows by up to three windows. A tensor larger than the window
  /// is moved in several waves. Below 1 MiB, or the largest tensor if that is smaller, waves cost
  /// more than they move; Plan::warnings says so. 0: 64 MiB; 256 MiB where `load` itself plans for
  /// GPUs.
  std::uint64_t window = 0;

  /// Most device bytes per rank: shards, slabs and pack buffer, and `reserved_bytes`; not CUDA's
  /// own context. 0: no limit. The window is reduced to fit, but not below 1 MiB, or the largest
  /// tensor if that is smaller; where that does not fit, planning throws MemoryError.
  std::uint64_t memory_budget = 0;

  /// Of the budget, what is taken beside the plan. `load` by path adds pack tables and the buffers
  /// of the transport, of which NCCL has hundreds of megabytes.
  std::uint64_t reserved_bytes = 0;
};

/// The engine that reads files.
enum class IoEngine : std::uint8_t { automatic, posix };

/// Whether reads bypass the page cache (O_DIRECT).
enum class DirectIo : std::uint8_t { automatic, on, off };

/// Whether the threads that serve a device move to the NUMA node it is attached to.
enum class Numa : std::uint8_t { automatic, off };

/// How far a load is.
struct Progress {
  std::uint64_t bytes = 0;        ///< tensor bytes of the finished waves, over all ranks
  std::uint64_t total_bytes = 0;  ///< tensor bytes to read, over all ranks
  std::uint64_t wave = 0;         ///< finished waves
  std::uint64_t waves = 0;
};

/// Everything a load depends on.
struct Options {
  PlanOptions plan;

  /// Placement rules: "auto" (from config.json's model_type), "replicate", or the path of a rule
  /// file, which rank 0 reads.
  std::string tp_plan = "auto";

  IoEngine io = IoEngine::automatic;

  /// `automatic` reads through the page cache. `on` suits cold files on fast local disks; whatever
  /// a filesystem refuses to read so is read buffered, which the report says (an error under
  /// `strict`).
  DirectIo direct = DirectIo::automatic;

  /// `automatic`: reader threads, and the page-locked memory that they fill, are on the GPU's NUMA
  /// node, if the cgroup permits as many CPUs there as there are reader threads; else where the
  /// launcher bound the rank, if those are as many; else on any that the cgroup permits. A launcher
  /// that binds each rank to one core so does not make all its threads share that. `off`, and on
  /// the host: they are where the launcher bound the rank.
  Numa numa = Numa::automatic;

  /// Reader threads per rank. 0: as many as there are cores, up to 4. On GPUs one less than the
  /// cores divided by the ranks that share them, but 4 to 16.
  unsigned threads = 0;

  /// Bytes per read call, at least 4 KiB. 0: 8 MiB; 2 MiB on GPUs. There, page-locked memory takes
  /// two chunks per thread, but not more than 64 MiB, or two chunks if they are larger.
  std::uint64_t chunk = 0;

  /// Longest time without progress before a peer counts as lost, at least 1 s. Must be longer than
  /// any rank takes to allocate its memory and to read and pack one window, all to connect and to
  /// exchange it, and one call to the storage, such as reading the header of a file or flushing a
  /// part of one. Apart from that, opening, planning, verifying and saving may take any time: a
  /// rank that is at work does not count as lost. For that, computations run on a thread of their
  /// own; they end before this rank throws that a peer was lost.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);

  /// A fallback from what was asked for is an error (FallbackError) instead of a line in the
  /// report.
  bool strict = false;

  /// Keep every span of every phase in the report (RankReport::spans), some dozens of bytes per
  /// wave.
  bool trace = false;

  /// Called on the loading thread after every wave and at most every 100 ms between; by `verify`
  /// after every tensor, with the bytes that this rank holds. Must not use the communicator:
  /// collective calls on it throw ConfigError. If it throws, it is not called again, all ranks of a
  /// load stop with the wave that follows, and all ranks throw: an Error as it is, anything else as
  /// InternalError.
  std::function<void(const Progress&)> on_progress;
};

}  // namespace safeshuffle
