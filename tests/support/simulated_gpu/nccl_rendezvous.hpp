// How the ranks of a communicator connect: each listens on a socket in a directory named by the
// unique id, connects to all lower ranks, and accepts connections from all higher ones.
#pragma once

#include <nccl.h>
#include <string>
#include <vector>

#include "support/simulated_gpu/sockets.hpp"

namespace simulated_gpu {

/// What a rank tells all others about itself.
struct Introduction {
  int rank = 0;
  int size = 0;
  char host[64] = {};  ///< NCCL_HOSTID, or the host's name
  char bus_id[16] = {};
};

/// `bus_id`: of the rank's GPU.
Introduction introduce(int rank, int size, const std::string& bus_id);

/// A name for a directory that does not exist yet.
ncclUniqueId make_unique_id();

/// One socket per rank, except for itself. Removes the files that were needed to connect.
/// Throws NcclFailure, PeerLost, Aborted.
std::vector<Descriptor> meet(const ncclUniqueId& id, const Introduction& self,
                             const AbortSignal& abort);

}  // namespace simulated_gpu
