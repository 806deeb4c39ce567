// One collective call at a time on a communicator.
#pragma once

#include <memory>

#include "safeshuffle/communicator.hpp"
#include "safeshuffle/options.hpp"

namespace safeshuffle::comm {

/// Reserves a communicator, including all its copies, for its own lifetime, during which `comm`
/// must exist. The first statement of every collective call of the library; it does not nest.
class CollectiveCall {
 public:
  /// `cancel`: see Options. Throws ConfigError, before anything is sent, if another call is using
  /// the communicator or if this thread may not use its control.
  explicit CollectiveCall(const Communicator& comm, std::shared_ptr<CancelFlag> cancel = nullptr);
  CollectiveCall(const CollectiveCall&) = delete;
  CollectiveCall& operator=(const CollectiveCall&) = delete;

 private:
  struct Release {
    void operator()(Control* control) const noexcept;
  };

  std::unique_ptr<Control, Release> taken_;
};

}  // namespace safeshuffle::comm
