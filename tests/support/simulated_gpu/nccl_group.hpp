// The group of NCCL calls that a thread has open.
#pragma once

#include <nccl.h>
#include <vector>

#include "support/simulated_gpu/nccl_operation.hpp"

namespace simulated_gpu {

/// One per thread. What is added without a group is a group by itself.
class Group {
 public:
  static Group& of_this_thread();

  void start() { ++depth_; }

  /// Launches what was added once the outermost group ends: one stream operation per communicator.
  /// Throws NcclFailure if there is no group, or a call in it has failed; nothing is launched then.
  /// ncclInProgress if a non-blocking communicator is still at it.
  ncclResult_t end();

  ncclResult_t add(Operation operation);

  /// Makes the open group, if any, fail in the end.
  void fail(ncclResult_t error);

 private:
  ncclResult_t launch();

  int depth_ = 0;
  ncclResult_t error_ = ncclSuccess;
  std::vector<Operation> operations_;
};

}  // namespace simulated_gpu
