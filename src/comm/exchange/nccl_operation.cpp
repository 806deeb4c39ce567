#include "comm/exchange/nccl_operation.hpp"

#include <algorithm>
#include <utility>

#include "comm/exchange/nccl_call.hpp"
#include "comm/exchange/nccl_library.hpp"
#include "core/arithmetic.hpp"
#include "core/backoff.hpp"
#include "core/deadline.hpp"
#include "device/cuda/call.hpp"

namespace safeshuffle::comm {
namespace {

template <class Call>
void for_each_piece(std::uint64_t bytes, const Call& call) {
  const std::uint64_t piece = nccl_piece_bytes(bytes);
  for (std::uint64_t begin = 0; begin < bytes; begin += piece) {
    call(begin, std::min(piece, bytes - begin));
  }
}

/// Whether the work that an abort has ended has left the device, as it should at once.
bool becomes_idle(device::Queue& queue) noexcept {
  const core::Deadline deadline(std::chrono::seconds(1));
  core::Backoff backoff;
  try {
    while (!queue.idle() && !deadline.expired()) backoff.pause();
    return queue.idle();
  } catch (...) {  // unknown, so it may still be running
    return false;
  }
}

}  // namespace

std::uint64_t nccl_piece_bytes(std::uint64_t bytes) noexcept {
  // NCCL moves 16 bytes at a time only if all pieces begin at multiples of 16.
  constexpr std::uint64_t alignment = 16;
  const std::uint64_t pieces = std::min(core::ceil_div(bytes, best_nccl_bytes), most_nccl_pieces);
  return core::align_up(core::ceil_div(bytes, pieces), alignment);
}

void NcclCalls::send(std::uint32_t peer, const std::byte* data, std::uint64_t bytes) const {
  for_each_piece(bytes, [&](std::uint64_t begin, std::uint64_t length) {
    check_nccl(nccl().send(data + begin, length, ncclUint8, static_cast<int>(peer), comm_, stream_),
               "ncclSend", comm_);
  });
}

void NcclCalls::receive(std::uint32_t peer, std::byte* data, std::uint64_t bytes) const {
  for_each_piece(bytes, [&](std::uint64_t begin, std::uint64_t length) {
    check_nccl(nccl().recv(data + begin, length, ncclUint8, static_cast<int>(peer), comm_, stream_),
               "ncclRecv", comm_);
  });
}

void NcclCalls::broadcast(std::uint32_t root, std::byte* data, std::uint64_t bytes) const {
  for_each_piece(bytes, [&](std::uint64_t begin, std::uint64_t length) {
    std::byte* const piece = data + begin;
    check_nccl(
        nccl().broadcast(piece, piece, length, ncclUint8, static_cast<int>(root), comm_, stream_),
        "ncclBroadcast", comm_);
  });
}

// By gathering, which uses the ring of the broadcasts; a reduction would connect trees, with
// buffers of their own.
void NcclCalls::barrier(std::uint32_t rank, std::byte* tokens) const {
  const std::byte* const mine = tokens + rank * token_bytes;
  check_nccl(nccl().all_gather(mine, tokens, token_bytes, ncclUint8, comm_, stream_),
             "ncclAllGather", comm_);
}

void enqueue_copy(std::byte* destination, const std::byte* source, std::uint64_t bytes,
                  device::Queue& queue) {
  device::check_cuda(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault,
                                     static_cast<cudaStream_t>(queue.native_handle())),
                     "cudaMemcpyAsync");
}

NcclOperation::NcclOperation(std::shared_ptr<NcclGroup> group, device::Queue& queue,
                             Enqueue enqueue, Fetch fetch)
    : group_(std::move(group)),
      queue_(queue),
      enqueue_(std::move(enqueue)),
      fetch_(std::move(fetch)) {}

NcclOperation::~NcclOperation() {
  if (done_) return;
  if (!group_->break_off() || !becomes_idle(queue_)) queue_.abandon();
}

bool NcclOperation::done() {
  if (done_) return true;
  const device::GpuScope scope(group_->gpu());
  if (!group_->ready()) return false;
  if (!begun_) {
    begin();
    if (!group_->ready()) return false;  // nothing of the group may be on the stream yet
  }
  if (!fetching_) {
    fetching_ = true;
    fetch_(queue_);
  }
  done_ = queue_.idle();
  return done_;
}

// A group must be ended even after an error, or the thread stays in it.
void NcclOperation::begin() {
  begun_ = true;
  check_nccl(nccl().group_start(), "ncclGroupStart");
  try {
    enqueue_({group_->comm(), static_cast<cudaStream_t>(queue_.native_handle())});
  } catch (...) {
    nccl().group_end();
    throw;
  }
  check_nccl(nccl().group_end(), "ncclGroupEnd", group_->comm());
}

}  // namespace safeshuffle::comm
