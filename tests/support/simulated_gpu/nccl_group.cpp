#include "support/simulated_gpu/nccl_group.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "support/simulated_gpu/chance.hpp"
#include "support/simulated_gpu/nccl_exchange.hpp"
#include "support/simulated_gpu/nccl_failure.hpp"
#include "support/simulated_gpu/violations.hpp"

namespace simulated_gpu {
namespace {

constexpr std::chrono::microseconds longest_launch{2000};

/// Operations of one communicator.
using Batch = std::vector<Operation>;
using InFlight = std::shared_ptr<Communicator::InFlight>;

std::vector<Batch> by_communicator(std::vector<Operation> operations) {
  std::vector<Batch> batches;
  for (Operation& operation : operations) {
    const auto same = [&](const Batch& batch) {
      return batch.front().communicator == operation.communicator;
    };
    auto batch = std::find_if(batches.begin(), batches.end(), same);
    if (batch == batches.end()) batch = batches.emplace(batches.end());
    batch->push_back(std::move(operation));
  }
  return batches;
}

void require_one_stream(const std::vector<Operation>& operations) {
  const auto other = [&](const Operation& operation) {
    return operation.stream != operations.front().stream;
  };
  if (std::any_of(operations.begin(), operations.end(), other)) {
    report_violation("more than one stream in one NCCL group");
  }
}

// The token that counts an operation as in flight is moved, never copied: a copy would make the
// operation appear to last longer.
void enqueue(const Batch& batch, InFlight in_flight) {
  batch.front().stream->enqueue_work(
      [batch, in_flight = std::move(in_flight)] { Exchange(batch).run(); });
}

/// In the background, as a non-blocking communicator does.
void enqueue_later(const Batch& batch, InFlight in_flight, std::uint64_t turn) {
  Chance chance(turn);
  chance.pause(longest_launch);
  enqueue(batch, std::move(in_flight));
  batch.front().communicator->settle(ncclSuccess);
}

std::uint64_t next_turn() {
  static std::atomic<std::uint64_t> turns{0};
  return ++turns;
}

ncclResult_t launch_batch(const Batch& batch) {
  const auto communicator = batch.front().communicator;
  auto in_flight = std::make_shared<Communicator::InFlight>(communicator);
  if (communicator->blocking()) {
    enqueue(batch, std::move(in_flight));
    return ncclSuccess;
  }
  const std::uint64_t turn = next_turn();
  communicator->begin();
  std::thread(enqueue_later, batch, std::move(in_flight), turn).detach();
  if (turn % 2 == 0) communicator->wait_settled();
  return communicator->state();
}

}  // namespace

Group& Group::of_this_thread() {
  thread_local Group group;
  return group;
}

ncclResult_t Group::end() {
  require(depth_ > 0, ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  return --depth_ > 0 ? ncclSuccess : launch();
}

ncclResult_t Group::add(Operation operation) {
  operation.communicator->enter_group();
  operations_.push_back(std::move(operation));
  return depth_ > 0 ? ncclSuccess : launch();
}

void Group::fail(ncclResult_t error) {
  if (depth_ > 0 && error_ == ncclSuccess) error_ = error;
}

ncclResult_t Group::launch() {
  const auto operations = std::exchange(operations_, {});
  const ncclResult_t error = std::exchange(error_, ncclSuccess);
  for (const Operation& operation : operations) operation.communicator->leave_group();
  require(error == ncclSuccess, error, "a call in the group has failed");
  require_one_stream(operations);
  ncclResult_t result = ncclSuccess;
  for (const Batch& batch : by_communicator(operations)) {
    const ncclResult_t launched = launch_batch(batch);
    if (launched != ncclSuccess) result = launched;
  }
  return result;
}

}  // namespace simulated_gpu
