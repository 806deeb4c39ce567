#include "comm/collective_call.hpp"

#include "safeshuffle/error.hpp"

#include "comm/control/control.hpp"

namespace safeshuffle::comm {
namespace {

std::atomic<bool>* take(std::atomic<bool>& taken) {
  if (!taken.exchange(true)) return &taken;
  throw ConfigError(
      "the communicator has another operation in progress; collective calls on it, and on its "
      "copies, must not overlap");
}

}  // namespace

CollectiveCall::CollectiveCall(const Communicator& comm) : taken_(take(comm.control().taken())) {
  comm.control().check_thread();
}

}  // namespace safeshuffle::comm
