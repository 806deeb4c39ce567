// One collective call at a time on a communicator.
#pragma once

#include <atomic>
#include <memory>

#include "safeshuffle/communicator.hpp"

namespace safeshuffle::comm {

/// Reserves a communicator, including all its copies, for its own lifetime, during which `comm`
/// must exist. The first statement of every collective call of the library; it does not nest.
class CollectiveCall {
 public:
  /// Throws ConfigError, before anything is sent, if another call is using the communicator or if
  /// this thread may not use its control.
  explicit CollectiveCall(const Communicator& comm);
  CollectiveCall(const CollectiveCall&) = delete;
  CollectiveCall& operator=(const CollectiveCall&) = delete;

 private:
  struct Release {
    void operator()(std::atomic<bool>* taken) const noexcept { *taken = false; }
  };

  std::unique_ptr<std::atomic<bool>, Release> taken_;  // the control's
};

}  // namespace safeshuffle::comm
