// A group of the ranks of a job that was started without MPI (torchrun, srun, Kubernetes).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "safeshuffle/all_gather.hpp"
#include "safeshuffle/communicator.hpp"

namespace safeshuffle {

/// This rank, its group, and how the ranks reach each other. Plain data: fill it in, or read it
/// from the launcher's environment variables.
struct Bootstrap {
  /// Rank of this process, below `size`.
  std::uint32_t rank = 0;

  /// Number of ranks in the group, at least 1; the same on all ranks.
  std::uint32_t size = 1;

  /// Position among the ranks of this node, from 0; selects the GPU.
  std::uint32_t local_rank = 0;

  /// Where rank 0 waits for the others, "tcp://HOST:PORT" or "tcp://HOST:PORT/JOB"; the same on all
  /// ranks, not needed for a group of one. HOST is a name, an IPv4 address or an IPv6 one in
  /// brackets at which the other ranks reach rank 0. Rank 0 listens on PORT of all interfaces, or
  /// only of the loopback interface if HOST is "localhost" or a loopback address. JOB, at most 128
  /// bytes, distinguishes jobs that use one port at the same time. Rank 0 stays connected to every
  /// other rank as long as the communicator exists; it no longer listens once all have joined.
  ///
  /// Connections are not authenticated: whoever can connect to the port can join or disrupt.
  std::string address = {};

  /// Longest time to wait for the other ranks, from the call until all have joined; ranks may start
  /// that far apart. A longer time-out suits slow schedulers, a shorter one reports a missing rank
  /// sooner. Looking up HOST may add the resolver's own time-out. Ranks other than 0 wait half a
  /// second longer, so that rank 0 can tell them which ranks are missing. Also bounds each later
  /// wait of the call, such as for another rank to open its GPU.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);

  /// If set, control messages are sent with it, and `address` is not used.
  AllGather all_gather = {};

  /// Reads the environment variables of launchers; empty ones count as not set. Throws ConfigError.
  ///
  /// - rank, size, local rank: from the first of these groups whose first variable is set. The
  ///   local rank is 0 if its variable is not set.
  ///     - RANK, WORLD_SIZE, LOCAL_RANK (torchrun, Kubernetes)
  ///     - OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK (mpirun)
  ///     - PMI_RANK, PMI_SIZE, MPI_LOCALRANKID (Hydra)
  ///     - SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID (srun); last, because every process inside a
  ///       Slurm job inherits them
  /// - address: SAFESHUFFLE_RENDEZVOUS, or else tcp:// with MASTER_ADDR and the port after
  ///   MASTER_PORT (before it, if that is 65535), since torchrun itself listens on MASTER_PORT; JOB
  ///   is TORCHELASTIC_RUN_ID, or SLURM_JOB_ID with SLURM_STEP_ID.
  static Bootstrap from_environment();
};

/// A communicator over the ranks that join with `bootstrap`. On GPUs, data is sent over NCCL. On
/// the host, ranks cannot send each other any: each reads all that it keeps (Assignment::sliced,
/// which is then what `automatic` chooses). Collective: waits up to `bootstrap.timeout` until all
/// ranks have joined. Then each opens its device: what one throws, all throw. Starts to initialise
/// NCCL without waiting for it; the first load waits, within Options::timeout.
///
/// A rank whose address is invalid (ConfigError), or a rank 0 that cannot listen (TransportError),
/// throws at once and alone; the others time out.
///
/// Throws ConfigError (invalid address; GPUs, but no NCCL), MemoryError, TimeoutError,
/// TransportError.
Communicator from_bootstrap(const Bootstrap& bootstrap, Device device = Device::cuda());

}  // namespace safeshuffle
