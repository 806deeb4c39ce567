#include "comm/collective_call.hpp"

#include <utility>

#include "safeshuffle/error.hpp"

#include "comm/control/control.hpp"

namespace safeshuffle::comm {
namespace {

Control* take(Control& control) {
  if (!control.taken().exchange(true)) return &control;
  throw ConfigError(
      "the communicator has another operation in progress; collective calls on it, and on its "
      "copies, must not overlap");
}

}  // namespace

CollectiveCall::CollectiveCall(const Communicator& comm, std::shared_ptr<CancelFlag> cancel)
    : taken_(take(comm.control())) {
  taken_->check_thread();
  taken_->set_cancel(std::move(cancel));
}

void CollectiveCall::Release::operator()(Control* control) const noexcept {
  control->set_cancel(nullptr);
  control->taken() = false;
}

}  // namespace safeshuffle::comm
