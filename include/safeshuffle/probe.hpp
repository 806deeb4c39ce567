// Measures what this machine can do at most for loading given files, and keeps the results. Output
// and kept files: docs/probe.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/communicator.hpp"
#include "safeshuffle/costs.hpp"
#include "safeshuffle/options.hpp"
#include "safeshuffle/prediction.hpp"
#include "safeshuffle/report.hpp"

namespace safeshuffle {

/// What a probe depends on. The same on all ranks.
struct ProbeOptions {
  /// Fewer and shorter runs: a few seconds instead of up to a minute.
  bool quick = false;

  /// Where files at URLs are probed.
  RemoteOptions remote;

  /// See Options::timeout. At least 10 s, because single runs take up to some seconds.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);

  /// Called on the calling thread after every run, with the share of the work that is done, 0 to 1.
  /// Must not use the communicator; what it throws, all ranks throw.
  std::function<void(double)> on_progress;
};

/// Where something was measured; results of different places cannot be compared. Rank 0's, whose
/// node all others are assumed to equal.
struct ProbePlace {
  std::string host;               ///< name of the node
  std::string filesystem;         ///< type, such as "ext4"; "unknown"; of a URL, such as "s3"
  std::string filesystem_device;  ///< such as "/dev/nvme0n1" or "server:/export", or the bucket
  std::string cpu;                ///< model; empty if unknown
  unsigned cpus = 0;              ///< of the node, whatever a rank may run on
  std::string device;             ///< "host", or the model of the GPU
  std::uint32_t ranks_per_node = 1;
  std::uint32_t nodes = 1;
  bool operator==(const ProbePlace&) const = default;
};

/// The node of rank 0, besides what is part of the place.
struct Machine {
  unsigned cores = 0;              ///< that rank 0 may run on
  std::uint64_t memory_bytes = 0;  ///< physical
  std::string kernel;              ///< such as "6.1.0-18-amd64"
};

/// The middle and the extremes of several runs: bytes per second, or seconds.
struct Spread {
  double median = 0;
  double least = 0;
  double most = 0;
  std::uint32_t runs = 0;
};

/// One of the things that were measured; docs/probe.md lists the names.
struct Measurement {
  /// Whose rate it is, and who worked at the same time.
  enum class Of : std::uint8_t {
    one_rank,   ///< rank 0, alone
    node,       ///< all ranks of a node together
    each_rank,  ///< one of the ranks, all of which did the same
  };

  std::string name;
  Of of = Of::each_rank;
  bool is_time = false;          ///< seconds, not bytes per second
  std::uint64_t bytes = 0;       ///< moved in the last run, by all that took part
  std::optional<Spread> result;  ///< empty if it could not be measured
  std::string obstacle;          ///< why not
};

/// Everything that was measured, on rank 0's authority. The same on all ranks.
struct Probe {
  std::string version;  ///< of the library
  std::string date;     ///< UTC, such as "2026-11-22T09:00:00Z"
  bool quick = false;
  ProbePlace place;
  Machine machine;
  std::string transport;           ///< Report::transport
  std::string engine;              ///< of the reader
  unsigned threads = 0;            ///< of the reader, on rank 0
  std::uint64_t chunk = 0;         ///< bytes per read call
  std::uint64_t window = 0;        ///< bytes that a rank reads at a time
  std::uint64_t sample_bytes = 0;  ///< of the files that all ranks read together
  std::vector<Measurement> measurements;
};

/// Measures. Collective. Reads only the files of the checkpoint at `paths` (see `load`), and writes
/// none; pages of these files are dropped from the page cache and read into it again. Takes memory
/// for three windows on each device, up to 2 GiB of host memory per node for all ranks together,
/// and up to 2 GiB of page cache. Throws as `load` by path does.
Probe probe(const std::vector<std::string>& paths, const Communicator& comm,
            const ProbeOptions& options = {});

/// What of it was measured, as costs; what was not is not known.
Costs costs_of(const Probe& probe);

/// As JSON, without a final newline. Schema: docs/probe.md.
std::string to_json(const Probe& probe);

/// Where probes are kept for this user: $XDG_CACHE_HOME/safeshuffle/probe, with ~/.cache if that
/// variable is not set. Empty if there is no home directory either.
std::string probe_directory();

/// Keeps a probe in `directory`, in place of an earlier one of the same place; creates the
/// directory. The file appears complete or not at all. Returns its path. Throws IoError.
std::string keep_probe(const Probe& probe, const std::string& directory);

/// A probe that was kept.
struct KeptProbe {
  std::string path;
  std::string date;
  Costs costs;
};

/// The one that was kept in `directory` for this place, if any. Throws IoError if it cannot be
/// read, ConfigError if it is not valid.
std::optional<KeptProbe> find_probe(const ProbePlace& place, const std::string& directory);

/// The place of a load from `path` by this group. Collective; the same on all ranks. `timeout`: see
/// Options::timeout.
ProbePlace place_of(const Communicator& comm, const std::string& path,
                    std::chrono::milliseconds timeout = std::chrono::minutes(5));

/// The machine in the JSON text of a probe, for predictions; what was not measured has the defaults
/// of its device. Pure. Throws as costs_from_probe.
MachineModel machine_from_probe(std::string_view json, const std::string& name = "probe");

/// Adds to the report what share of these ceilings the load reached.
void add_ceilings(Report& report, const KeptProbe& probe);

}  // namespace safeshuffle
