// How the ranks of a communicator meet: each listens at a socket in a directory that the unique id
// names, connects to all ranks below its own, and accepts all above.
#pragma once

#include <nccl.h>
#include <string>
#include <vector>

#include "support/simulated_gpu/sockets.hpp"

namespace simulated_gpu {

/// What a rank says of itself to all others.
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

/// One socket per rank, without one for itself. What was needed to meet is removed in the end.
/// Throws NcclFailure, PeerLost, Aborted.
std::vector<Descriptor> meet(const ncclUniqueId& id, const Introduction& self,
                             const AbortSignal& abort);

}  // namespace simulated_gpu
