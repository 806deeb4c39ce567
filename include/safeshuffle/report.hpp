// What a load did and how long each part took. Plain data.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/options.hpp"
#include "safeshuffle/requests.hpp"
#include "safeshuffle/selection.hpp"
#include "safeshuffle/target.hpp"

namespace safeshuffle {

/// The parts of a load. On each rank the phases partition the time of the loading thread, so they
/// add up to the total. Work that overlaps another phase (mostly reading) does not count in its own
/// phase.
enum class Phase : std::uint8_t {
  open,      ///< finding files, headers, catalog
  plan,      ///< placement, planning, proof, hash comparison
  allocate,  ///< arena and its zeros, slabs, buffers, reader; connecting the transport to the peers
  read,      ///< starting reads, and waiting for file data
  h2d,       ///< waiting for the copy to the device
  pack,      ///< extracting, converting, unpacking; with a GPU, only enqueuing that
  exchange,  ///< exchanging data between ranks; with a GPU, also waiting for packing
  wait,      ///< agreement with the other ranks
  verify,    ///< re-reading and comparing (if requested)
};
inline constexpr std::size_t phase_count = 9;

/// "open", "plan", ...
std::string_view name(Phase phase) noexcept;

/// A time span on one rank, in seconds since that rank started the load.
struct Span {
  enum class Track : std::uint8_t {
    phases,  ///< the loading thread
    reads,   ///< of one wave, from the first to the last
    copies,  ///< copies of one wave from host to device, from the first to the last
    stream,  ///< what the GPU's stream does to pack, exchange and unpack one wave
  };
  Track track = Track::phases;
  std::string name;  ///< the phase; "wave 3"; of a stream "pack 3", "exchange 3", "unpack 3"
  double begin = 0;
  double seconds = 0;
};
inline constexpr std::size_t track_count = 4;

/// "phases", "reads", ...
std::string_view name(Span::Track track) noexcept;

/// What DirectIo::automatic chose for some of the bytes read, and why.
struct ReadChoice {
  bool direct = false;  ///< bypassing the page cache, or through it
  std::string reason;   ///< "cold", "cached", ...; all of them: docs/report.md
  std::uint64_t bytes = 0;
};

/// One rank's part. Times in seconds, sizes in bytes.
struct RankReport {
  std::uint32_t rank = 0;
  std::string host;                          ///< name of its node
  std::string device;                        ///< such as "host" or "NVIDIA H200 at 0000:1B:00.0"
  unsigned cores = 0;                        ///< number of cores that the process may run on
  std::array<double, phase_count> phases{};  ///< by Phase
  double total_seconds = 0;                  ///< sum of the phases
  double cpu_seconds = 0;  ///< of all threads of the process meanwhile, without verification
  /// Until the end of the first wave that completes a tensor; 0 without waves.
  double first_tensor_seconds = 0;
  double first_layer_seconds = 0;  ///< the same of a layer; 0 if no name has a number
  double read_busy_seconds = 0;    ///< time with at least one read in progress
  double read_hidden_seconds = 0;  ///< the part of it that overlapped other phases
  std::uint64_t read_bytes = 0;    ///< of slices, with gaps between rows where those are read
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t kept_bytes = 0;
  std::uint64_t peak_device_bytes = 0;       ///< with what a session has kept, and the next two
  std::uint64_t transport_device_bytes = 0;  ///< transport buffers: an upper bound
  std::uint64_t packer_device_bytes = 0;     ///< pack tables
  std::uint64_t peak_pinned_bytes = 0;
  std::uint64_t peak_resident_bytes = 0;  ///< of the whole process
  std::string io_path;                    ///< engine and mode used: "posix buffered"; or "none"
  std::uint64_t direct_bytes = 0;         ///< read from storage with O_DIRECT
  std::uint64_t buffered_bytes = 0;       ///< read from storage through the page cache
  std::uint64_t gds_bytes = 0;            ///< of the direct ones, read straight into GPU memory
  std::uint64_t in_place_bytes = 0;       ///< of all, read to their final place, without a slab
  std::vector<ReadChoice> read_choices;   ///< empty if the caller chose with Options::direct
  Requests requests;                      ///< since the checkpoint was opened
  unsigned reader_threads = 0;
  std::uint64_t reader_chunk = 0;      ///< maximum bytes per read call
  std::string reader_cpus;             ///< CPUs of the reader threads, such as "0-15,64-79"
  std::uint64_t fallback_files = 0;    ///< number of files with a fallback
  std::vector<std::string> fallbacks;  ///< one line per reason, with the first of these files
  std::vector<Span> spans;             ///< if Options::trace; else empty
};

/// What a step of a load reached of what the machine can do. Rates in bytes per second.
struct Reached {
  Phase step = Phase::read;
  std::string ceiling;          ///< which one, such as "cold direct" (docs/report.md)
  double bytes_per_second = 0;  ///< that the load reached
  double most = 0;              ///< the ceiling
  double share() const noexcept { return bytes_per_second / most; }
};

/// What a load reached, step by step, in comparison with a probe (probe.hpp).
struct Ceilings {
  std::string probe;           ///< path of the kept result
  std::string date;            ///< of the probe
  std::vector<Reached> steps;  ///< for which there is a ceiling
};

/// The whole load.
struct Report {
  std::string version;  ///< of the library, such as "0.1.0"
  std::string device;   ///< rank 0's
  std::string
      transport;  ///< "self", "mpi"; "nccl+" and what control messages use: mpi, tcp, caller
  Assignment assignment = Assignment::round_robin;  ///< Plan::assignment
  std::string assignment_reason;                    ///< Plan::assignment_reason
  Order order = Order::file;                        ///< PlanOptions::order
  std::uint32_t replicas = 1;                       ///< PlanOptions::replicas
  std::uint64_t plan_hash = 0;
  std::uint32_t waves = 0;
  std::uint64_t window = 0;
  std::uint64_t tensor_bytes = 0;     ///< Plan::needed_bytes
  double seconds = 0;                 ///< the slowest rank's total, without verification
  std::vector<std::string> warnings;  ///< PlannedLoad::warnings
  /// What part of the files was in the page cache when their headers were read, by a sample; empty
  /// if unknown, or if the load did not open them.
  std::optional<double> cached_share;
  PlacementSummary placement;
  std::optional<PipelineStage> stage;  ///< of a load by path, Selection::stage
  std::optional<Ceilings> ceilings;    ///< added by `add_ceilings` (probe.hpp)
  std::vector<RankReport> ranks;
};

/// The phase that took longest, without verification: how long the loading threads were in it, the
/// average over all ranks; of reading, how long reads were in progress, also beside other phases,
/// on the rank where this took longest. In seconds.
struct Bottleneck {
  Phase phase = Phase::open;
  double seconds = 0;
  double total_seconds = 0;  ///< of all phases, the average over all ranks
};

/// Of a report with at least one rank.
Bottleneck bottleneck(const Report& report);

/// Adds each rank's verification time (see `verify`) to its phases and total.
void add_verification(Report& report, const std::vector<double>& seconds_by_rank);

/// The report as JSON, without spans and without a final newline. Schema: docs/report.md.
std::string to_json(const Report& report);

/// The spans in Chrome's trace event format (chrome://tracing, Perfetto): one process per rank.
std::string to_trace_json(const Report& report);

}  // namespace safeshuffle
