// One rank's end of a communicator.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nccl.h>
#include <optional>
#include <thread>
#include <vector>

#include "support/simulated_gpu/device.hpp"
#include "support/simulated_gpu/handle_table.hpp"
#include "support/simulated_gpu/sockets.hpp"

namespace simulated_gpu {

/// Thread-safe, although NCCL allows only one thread to use it at a time, in order to check that
/// the program obeys that rule. Operations in flight keep it alive.
class Communicator {
 public:
  Communicator(Device& device, int rank, int size, bool blocking)
      : device_(device), rank_(rank), size_(size), blocking_(blocking) {}

  Device& device() const noexcept { return device_; }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  bool blocking() const noexcept { return blocking_; }

  /// Connects to the other ranks; the state tells the result. Blocks.
  void join(const ncclUniqueId& id);

  /// What ncclCommGetAsyncError says: ncclInProgress from `begin` to `settle`; the first error
  /// stays.
  ncclResult_t state() const;
  void begin();
  void settle(ncclResult_t result);
  void fail(ncclResult_t error);

  /// From now on, no operation may begin.
  void finalize() noexcept { finalized_ = true; }
  bool finalized() const noexcept { return finalized_; }

  /// Ends all waiting: operations in flight then count as done, whatever their progress.
  void abort() { abort_.raise(); }
  const AbortSignal& abort_signal() const noexcept { return abort_; }

  /// Waits until the state is not ncclInProgress, and no operation is in flight.
  void wait_settled();
  void wait_quiet();

  /// The socket of a peer.
  int socket(int peer) const { return sockets_[static_cast<std::size_t>(peer)].number(); }

  /// Counts an operation, here and on its GPU, while it is enqueued or runs.
  class InFlight {
   public:
    explicit InFlight(std::shared_ptr<Communicator> communicator);
    ~InFlight();
    InFlight(const InFlight&) = delete;
    InFlight& operator=(const InFlight&) = delete;

   private:
    std::shared_ptr<Communicator> communicator_;
  };

  /// Marks a call by this thread; a violation is reported if another thread is in one, or in a
  /// group with operations of this communicator.
  class Use {
   public:
    Use(Communicator& communicator, const char* function);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Communicator& communicator_;
  };

  /// From the first operation of a group to its end, the communicator belongs to the group's
  /// thread.
  void enter_group();
  void leave_group();

 private:
  Device& device_;
  const int rank_;
  const int size_;
  const bool blocking_;
  AbortSignal abort_;
  std::vector<Descriptor> sockets_;
  std::atomic<bool> finalized_{false};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool in_progress_ = false;
  ncclResult_t error_ = ncclSuccess;
  int in_flight_ = 0;
  int users_ = 0;
  std::optional<std::thread::id> group_thread_;
};

HandleTable<ncclComm_t, Communicator>& communicators();

}  // namespace simulated_gpu
