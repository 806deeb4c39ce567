// What one stream operation of NCCL does: all operations of a group on one communicator, together.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "support/simulated_gpu/nccl_channel.hpp"
#include "support/simulated_gpu/nccl_operation.hpp"

namespace simulated_gpu {

/// Used by the thread of a stream.
class Exchange {
 public:
  /// `operations` is not empty, all of one communicator.
  explicit Exchange(const std::vector<Operation>& operations);

  /// Ends when everything is done, or the communicator is aborted. If a peer is lost, or makes
  /// different calls, the communicator has an error from then on, and only an abort ends the
  /// waiting, as with the real kernels.
  void run();

 private:
  struct Reduction {
    const Operation* operation;
    std::vector<std::vector<std::byte>> contributions;  ///< by rank
  };

  void post(const Operation& operation);
  void post_broadcast(const Operation& operation);
  void post_all_gather(const Operation& operation);
  void post_all_reduce(const Operation& operation);
  void send_to_all(const Operation& operation);
  void copy_own_messages();
  void run_channels();
  bool poll_channels();
  void finish(const Reduction& reduction);
  void fail(ncclResult_t error);

  Communicator& communicator_;
  std::vector<Operation> operations_;
  std::vector<Channel> channels_;  ///< by rank
  std::deque<Reduction> reductions_;
};

}  // namespace simulated_gpu
