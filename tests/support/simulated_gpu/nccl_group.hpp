// The group of NCCL calls that a thread has open.
#pragma once

#include <nccl.h>
#include <vector>

#include "support/simulated_gpu/nccl_operation.hpp"

namespace simulated_gpu {

/// One per thread. An operation that is added without a group is a group by itself.
class Group {
 public:
  static Group& of_this_thread();

  void start() { ++depth_; }

  /// When the outermost group ends, launches the added operations: one stream operation per
  /// communicator. Throws NcclFailure if there is no group, or a call in it has failed; then
  /// nothing is launched. Returns ncclInProgress if a non-blocking communicator has not finished.
  ncclResult_t end();

  ncclResult_t add(Operation operation);

  /// Makes the open group, if any, fail when it ends.
  void fail(ncclResult_t error);

 private:
  ncclResult_t launch();

  int depth_ = 0;
  ncclResult_t error_ = ncclSuccess;
  std::vector<Operation> operations_;
};

}  // namespace simulated_gpu
