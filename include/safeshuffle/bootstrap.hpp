// How the ranks of a job that was started without MPI (torchrun, srun, Kubernetes) find each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "safeshuffle/communicator.hpp"

namespace safeshuffle {

/// This rank, its group, and the place where the group meets. Plain data: fill it in, or take it
/// from the launcher's environment.
struct Bootstrap {
  /// This process, below `size`.
  std::uint32_t rank = 0;

  /// Ranks in the group, at least 1; the same on all of them.
  std::uint32_t size = 1;

  /// Position among the ranks of this node, from 0: selects the GPU.
  std::uint32_t local_rank = 0;

  /// Where rank 0 waits for the others, "tcp://HOST:PORT" or "tcp://HOST:PORT/JOB"; the same on all
  /// ranks, not needed by a group of one. HOST is a name, an IPv4 address or an IPv6 one in
  /// brackets by which the other ranks reach rank 0. Rank 0 listens on PORT of all interfaces; of
  /// the loopback interface only, if HOST is "localhost" or a loopback address. JOB, at most 128
  /// bytes, tells jobs apart that use one port at the same time.
  ///
  /// There is no authentication: whoever can connect to the port can join, or disrupt.
  std::string address;

  /// Longest time to wait for the others, from the call to the answer; ranks may start that far
  /// apart. Longer suits slow schedulers, shorter tells sooner that a rank is missing. Looking up
  /// HOST may add the resolver's own time-out. Ranks other than 0 wait half a second longer, to be
  /// told who is missing.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);

  /// Reads what launchers set; empty variables count as not set. Throws ConfigError.
  ///
  /// - rank, size, local rank: the first of these families of which the first variable is set.
  ///   Without a local rank it is 0.
  ///     - RANK, WORLD_SIZE, LOCAL_RANK (torchrun, Kubernetes)
  ///     - OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK (mpirun)
  ///     - PMI_RANK, PMI_SIZE, MPI_LOCALRANKID (Hydra)
  ///     - SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID (srun); last, because all that runs inside a
  ///       Slurm job inherits them
  /// - address: SAFESHUFFLE_RENDEZVOUS, or else tcp:// with MASTER_ADDR and the port after
  ///   MASTER_PORT (before it, if that is 65535), since torchrun itself listens on MASTER_PORT; JOB
  ///   is TORCHELASTIC_RUN_ID, or SLURM_JOB_ID with SLURM_STEP_ID.
  static Bootstrap from_environment();
};

/// A communicator over the ranks that meet by `bootstrap`, each with a GPU (`automatic` means the
/// same); a group of one may have the host as well. Collective: waits up to `bootstrap.timeout`
/// until all ranks have come. NCCL is then set up without waiting; the first load does that, within
/// Options::timeout.
///
/// Where a rank cannot open its GPU or has no memory for control messages on it, all ranks throw
/// its error, at once or when they come, rank 0 when all have come or `timeout` is over; of several
/// errors rank 0's own, or the one that rank 0 has heard of first. A rank with an error of its own
/// that does not reach rank 0 throws that one, when it has tried for `timeout`. A rank whose
/// address is invalid (ConfigError), and a rank 0 that cannot listen (TransportError), throw at
/// once; the others time out.
///
/// Throws ConfigError (an invalid address, the host device, a build without NCCL), MemoryError,
/// TimeoutError, TransportError.
Communicator from_bootstrap(const Bootstrap& bootstrap, Device device = Device::cuda());

}  // namespace safeshuffle
