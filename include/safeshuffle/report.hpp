// What a load did and how long each part took. Plain data.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/placement.hpp"

namespace safeshuffle {

/// The parts of a load. On each rank the phases partition the time of the loading thread, so they
/// add up to the total; work hidden behind another phase (reading, mostly) does not show in its
/// own.
enum class Phase : std::uint8_t {
  open,      ///< discovery, headers, catalog
  plan,      ///< placement, planning, proof, comparison of hashes
  allocate,  ///< arena, slabs, pack buffer, reader; connecting the transport to the peers
  read,      ///< waiting for file data that was not there yet
  h2d,       ///< waiting for the copy to the device
  pack,      ///< cutting and converting; with a GPU, handing it the work
  exchange,  ///< moving runs between ranks; with a GPU, waiting for packing as well
  wait,      ///< agreement with the other ranks
  verify,    ///< re-reading and comparing (if asked for)
};
inline constexpr std::size_t phase_count = 9;

/// "open", "plan", ...
std::string_view name(Phase phase) noexcept;

/// A stretch of time on one rank, in seconds since that rank began the load.
struct Span {
  enum class Track : std::uint8_t {
    phases,   ///< the loading thread; name is a phase's
    reading,  ///< one wave's read, from submission to landing; name is "wave 3"
  };
  Track track = Track::phases;
  std::string name;
  double begin = 0;
  double seconds = 0;
};

/// One rank's part. Times in seconds, sizes in bytes.
struct RankReport {
  std::uint32_t rank = 0;
  std::string host;                          ///< name of its node
  std::string device;                        ///< such as "host" or "NVIDIA H200 at 0000:1B:00.0"
  unsigned cores = 0;                        ///< that the process may run on
  std::array<double, phase_count> phases{};  ///< by Phase
  double total_seconds = 0;                  ///< sum of the phases
  double read_busy_seconds = 0;              ///< time during which at least one read was under way
  double read_hidden_seconds = 0;  ///< of these, not waited for: overlapped with other phases
  std::uint64_t read_bytes = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t kept_bytes = 0;
  std::uint64_t peak_device_bytes = 0;       ///< by plan, with the two that follow
  std::uint64_t transport_device_bytes = 0;  ///< of these, buffers of the transport: at most
  std::uint64_t packer_device_bytes = 0;     ///< of these, pack tables
  std::uint64_t peak_pinned_bytes = 0;
  std::uint64_t peak_resident_bytes = 0;  ///< of the whole process
  std::string io_path;                    ///< engine and mode used: "posix buffered"; or "none"
  std::uint64_t direct_bytes = 0;         ///< read from storage past the page cache
  std::uint64_t buffered_bytes = 0;       ///< read from storage through the page cache
  unsigned reader_threads = 0;
  std::uint64_t reader_chunk = 0;      ///< bytes per read call, at most
  std::string reader_cpus;             ///< of the reader threads, such as "0-15,64-79"
  std::uint64_t fallback_files = 0;    ///< for which something was asked but not done
  std::vector<std::string> fallbacks;  ///< the first of these and why, the others in one line
  std::vector<Span> spans;             ///< if Options::trace; else empty
};

/// The whole load.
struct Report {
  std::string version;    ///< of the library, such as "0.1.0"
  std::string device;     ///< rank 0's
  std::string transport;  ///< "self", "mpi", "nccl", or "nccl+mpi": MPI for control messages
  std::uint64_t plan_hash = 0;
  std::uint32_t waves = 0;
  std::uint64_t window = 0;
  std::uint64_t tensor_bytes = 0;     ///< read from storage, over all ranks
  double seconds = 0;                 ///< the slowest rank's total, without verification
  std::vector<std::string> warnings;  ///< Plan::warnings
  PlacementSummary placement;
  std::vector<RankReport> ranks;
};

/// Adds the time that each rank took to verify (see `verify`) to its phases and total.
void add_verification(Report& report, const std::vector<double>& seconds_by_rank);

/// JSON, schema in docs/report.md; ends without a newline. Spans are left out.
std::string to_json(const Report& report);

/// The spans in Chrome's trace event format (chrome://tracing, Perfetto): one process per rank.
std::string to_trace_json(const Report& report);

}  // namespace safeshuffle
