// How this process was launched: the only place that knows the launchers' environment variables.
// Empty variables count as not set. Thread-safe as long as the environment does not change.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace safeshuffle::core {

/// What connects the ranks of this process's job.
enum class Launch {
  alone,       ///< no launcher of several ranks, or no information on how they can connect
  mpi,         ///< a launcher of MPI (Open MPI, PMIx, PMI)
  rendezvous,  ///< an address: an explicit one, which overrides MPI, or that of torchrun
};

Launch how_launched();

/// The rank that the launcher assigned to this process; 0 if it was started alone, or if the
/// variables are not valid.
int launched_rank();

/// The position of this process in its job.
struct Place {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::uint32_t local_rank = 0;  ///< among those of the node; 0 if that is not known
};

/// From the first family of variables that has a rank, see Bootstrap::from_environment. Throws
/// ConfigError if there is none, or it is not valid.
Place launched_place();

/// The rendezvous address, see Bootstrap::from_environment. Throws ConfigError if none is set.
std::string rendezvous_address();

/// A directory that the processes of this job on this node share, and that the launcher removes.
/// PMIx has one.
std::optional<std::string> directory_of_job();

/// Whether Open MPI 4 has bound this process to CPUs of its own choice. It binds each of one or two
/// ranks to one core. Of other launchers, Open MPI 5 included, that is not known.
bool is_bound_by_default();

}  // namespace safeshuffle::core
