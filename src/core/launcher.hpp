// How launchers started this process: the one place that knows the environment variables by which
// they tell. Empty variables count as not set. Thread-safe as long as nobody changes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace safeshuffle::core {

/// What connects the ranks of this process's job.
enum class Launch {
  alone,       ///< no launcher of several ranks, or none that says how they find each other
  mpi,         ///< a launcher of MPI (Open MPI, PMIx, PMI)
  rendezvous,  ///< an address: an explicit one, which overrides MPI, or that of torchrun
};

Launch how_launched();

/// The rank that the launcher has given this process; 0 if it was started alone, or if the
/// variables make no sense.
int launched_rank();

/// This process among those of its job.
struct Place {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::uint32_t local_rank = 0;  ///< among those of the node; 0 if that is not known
};

/// From the first family of variables that has a rank, see Bootstrap::from_environment. Throws
/// ConfigError if there is none, or it makes no sense.
Place launched_place();

/// Where the ranks meet, see Bootstrap::from_environment. Throws ConfigError if nothing says where.
std::string rendezvous_address();

/// A directory that the processes of this job on this node share, and that the launcher removes.
/// PMIx has one.
std::optional<std::string> directory_of_job();

}  // namespace safeshuffle::core
