#include "support/simulated_gpu/nccl_communicator.hpp"

#include <exception>
#include <string>
#include <utility>

#include "support/simulated_gpu/inspect.hpp"
#include "support/simulated_gpu/nccl_error.hpp"
#include "support/simulated_gpu/nccl_failure.hpp"
#include "support/simulated_gpu/nccl_rendezvous.hpp"
#include "support/simulated_gpu/violations.hpp"

namespace simulated_gpu {

void Communicator::join(const ncclUniqueId& id) {
  try {
    sockets_ = meet(id, introduce(rank_, size_, device_.bus_id()), abort_);
    settle(ncclSuccess);
  } catch (const NcclFailure& failure) {
    settle(remember(failure));
  } catch (const PeerLost&) {
    settle(remember({ncclRemoteError, "a rank has left while the communicator was made"}));
  } catch (const Aborted&) {
    settle(remember({ncclInternalError, "aborted while the communicator was made"}));
  } catch (const std::exception& error) {
    settle(remember({ncclSystemError, error.what()}));
  }
}

ncclResult_t Communicator::state() const {
  const std::scoped_lock lock(mutex_);
  if (error_ != ncclSuccess) return error_;
  return in_progress_ ? ncclInProgress : ncclSuccess;
}

void Communicator::begin() {
  const std::scoped_lock lock(mutex_);
  in_progress_ = true;
}

void Communicator::settle(ncclResult_t result) {
  const std::scoped_lock lock(mutex_);
  in_progress_ = false;
  if (error_ == ncclSuccess) error_ = result;
  changed_.notify_all();
}

void Communicator::fail(ncclResult_t error) {
  const std::scoped_lock lock(mutex_);
  if (error_ == ncclSuccess) error_ = error;
}

void Communicator::wait_settled() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !in_progress_; });
}

void Communicator::wait_quiet() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return in_flight_ == 0; });
}

Communicator::InFlight::InFlight(std::shared_ptr<Communicator> communicator)
    : communicator_(std::move(communicator)) {
  const std::scoped_lock lock(communicator_->mutex_);
  ++communicator_->in_flight_;
  ++communicator_->device_.nccl_operations();
}

Communicator::InFlight::~InFlight() {
  const std::scoped_lock lock(communicator_->mutex_);
  --communicator_->in_flight_;
  --communicator_->device_.nccl_operations();
  communicator_->changed_.notify_all();
}

Communicator::Use::Use(Communicator& communicator, const char* function)
    : communicator_(communicator) {
  const std::scoped_lock lock(communicator_.mutex_);
  const auto& owner = communicator_.group_thread_;
  const bool in_foreign_group = owner && *owner != std::this_thread::get_id();
  if (++communicator_.users_ > 1 || in_foreign_group) {
    report_violation(std::string(function) + " on a communicator that another thread is using");
  }
}

Communicator::Use::~Use() {
  const std::scoped_lock lock(communicator_.mutex_);
  --communicator_.users_;
}

void Communicator::enter_group() {
  const std::scoped_lock lock(mutex_);
  group_thread_ = std::this_thread::get_id();
}

void Communicator::leave_group() {
  const std::scoped_lock lock(mutex_);
  group_thread_.reset();
}

HandleTable<ncclComm_t, Communicator>& communicators() {
  static auto* const table = new HandleTable<ncclComm_t, Communicator>;
  return *table;
}

std::size_t live_communicators() {
  return communicators().size();
}

}  // namespace simulated_gpu
