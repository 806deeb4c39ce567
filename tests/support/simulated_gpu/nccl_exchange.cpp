#include "support/simulated_gpu/nccl_exchange.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>

#include "support/simulated_gpu/nccl_error.hpp"
#include "support/simulated_gpu/nccl_reduce.hpp"
#include "support/simulated_gpu/sockets.hpp"
#include "support/simulated_gpu/violations.hpp"

namespace simulated_gpu {
namespace {

using Kind = Operation::Kind;

void copy_bytes(std::byte* target, const std::byte* source, std::uint64_t bytes) {
  if (bytes > 0) std::memmove(target, source, bytes);
}

/// The operations between the rank and itself, in order.
std::vector<const Operation*> own_messages(const std::vector<Operation>& operations, Kind kind,
                                           int rank) {
  std::vector<const Operation*> result;
  for (const Operation& operation : operations) {
    if (operation.kind == kind && operation.peer == rank) result.push_back(&operation);
  }
  return result;
}

bool sizes_match(const Operation* send, const Operation* receive) {
  return send->bytes == receive->bytes;
}

}  // namespace

Exchange::Exchange(const std::vector<Operation>& operations)
    : communicator_(*operations.front().communicator), operations_(operations) {
  for (int peer = 0; peer < communicator_.size(); ++peer) {
    channels_.emplace_back(communicator_.socket(peer));
  }
  // Within a group, NCCL matches collectives with collectives and messages with messages.
  std::stable_partition(operations_.begin(), operations_.end(),
                        [](const Operation& operation) { return operation.collective(); });
  for (const Operation& operation : operations_) post(operation);
}

void Exchange::run() {
  try {
    copy_own_messages();
    run_channels();
    for (const Reduction& reduction : reductions_) finish(reduction);
  } catch (const Aborted&) {  // NCCL's kernels just end
  } catch (const PeerLost&) {
    remember({ncclRemoteError, "a peer has closed its connection"});
    fail(ncclRemoteError);
  } catch (const Mismatch& mismatch) {
    report_violation("rank " + std::to_string(communicator_.rank()) + " " + mismatch.text);
    fail(ncclInvalidUsage);
  }
}

void Exchange::post(const Operation& operation) {
  const auto peer = static_cast<std::size_t>(operation.peer);
  const bool with_itself = operation.peer == communicator_.rank();
  switch (operation.kind) {
    case Kind::send:
      if (!with_itself) channels_[peer].send(header_of(operation), operation.source.data);
      break;
    case Kind::receive:
      if (!with_itself) channels_[peer].receive(header_of(operation), operation.target.data);
      break;
    case Kind::broadcast:
      return post_broadcast(operation);
    case Kind::all_gather:
      return post_all_gather(operation);
    case Kind::all_reduce:
      return post_all_reduce(operation);
  }
}

void Exchange::post_broadcast(const Operation& operation) {
  if (operation.peer != communicator_.rank()) {
    channels_[static_cast<std::size_t>(operation.peer)].receive(header_of(operation),
                                                                operation.target.data);
    return;
  }
  send_to_all(operation);
  copy_bytes(operation.target.data, operation.source.data, operation.bytes);
}

void Exchange::post_all_gather(const Operation& operation) {
  send_to_all(operation);
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    std::byte* const target = operation.target.data + index * operation.bytes;
    if (rank == communicator_.rank()) {
      copy_bytes(target, operation.source.data, operation.bytes);
    } else {
      channels_[index].receive(header_of(operation), target);
    }
  }
}

void Exchange::post_all_reduce(const Operation& operation) {
  send_to_all(operation);
  Reduction& reduction = reductions_.emplace_back();
  reduction.operation = &operation;
  reduction.contributions.resize(channels_.size());
  for (std::size_t rank = 0; rank < channels_.size(); ++rank) {
    auto& contribution = reduction.contributions[rank];
    contribution.resize(operation.bytes);
    if (static_cast<int>(rank) == communicator_.rank()) {
      copy_bytes(contribution.data(), operation.source.data, operation.bytes);
    } else {
      channels_[rank].receive(header_of(operation), contribution.data());
    }
  }
}

void Exchange::send_to_all(const Operation& operation) {
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    if (rank == communicator_.rank()) continue;
    channels_[static_cast<std::size_t>(rank)].send(header_of(operation), operation.source.data);
  }
}

void Exchange::copy_own_messages() {
  const auto sends = own_messages(operations_, Kind::send, communicator_.rank());
  const auto receives = own_messages(operations_, Kind::receive, communicator_.rank());
  if (!std::equal(sends.begin(), sends.end(), receives.begin(), receives.end(), sizes_match)) {
    throw Mismatch{"sends to itself something else than it receives from itself"};
  }
  for (std::size_t i = 0; i < sends.size(); ++i) {
    copy_bytes(receives[i]->target.data, sends[i]->source.data, sends[i]->bytes);
  }
}

void Exchange::run_channels() {
  while (poll_channels()) {
    for (Channel& channel : channels_) channel.progress();
  }
}

/// False when there is nothing to wait for.
bool Exchange::poll_channels() {
  std::vector<pollfd> polled{{communicator_.abort_signal().descriptor(), POLLIN, 0}};
  for (const Channel& channel : channels_) {
    if (channel.events() != 0) polled.push_back({channel.socket(), channel.events(), 0});
  }
  while (poll(polled.data(), polled.size(), polled.size() == 1 ? 0 : -1) < 0 && errno == EINTR) {
  }
  if (polled.front().revents != 0) throw Aborted{};
  return polled.size() > 1;
}

void Exchange::finish(const Reduction& reduction) {
  const Operation& operation = *reduction.operation;
  const auto& contributions = reduction.contributions;
  copy_bytes(operation.target.data, contributions.front().data(), operation.bytes);
  for (std::size_t rank = 1; rank < contributions.size(); ++rank) {
    reduce(operation.type, operation.reduction, operation.target.data, contributions[rank].data(),
           operation.bytes);
  }
}

void Exchange::fail(ncclResult_t error) {
  communicator_.fail(error);
  communicator_.abort_signal().wait();
}

}  // namespace simulated_gpu
