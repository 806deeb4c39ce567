// One group of NCCL calls on a queue's stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <functional>
#include <memory>
#include <nccl.h>

#include "comm/exchange/nccl_group.hpp"
#include "device/device.hpp"

namespace safeshuffle::comm {

/// The calls that a group may contain. Sizes in bytes, above 0. Transfers are divided into pieces
/// that NCCL moves efficiently; the pieces depend on the size only, so both sides have the same.
class NcclCalls {
 public:
  NcclCalls(ncclComm_t comm, cudaStream_t stream) : comm_(comm), stream_(stream) {}

  void send(std::uint32_t peer, const std::byte* data, std::uint64_t bytes) const;
  void receive(std::uint32_t peer, std::byte* data, std::uint64_t bytes) const;

  /// In place, on the root as well.
  void broadcast(std::uint32_t root, std::byte* data, std::uint64_t bytes) const;

  static constexpr std::uint64_t token_bytes = 16;

  /// Completes on no rank before all have started it. `rank`: this one; `tokens`: `token_bytes` of
  /// device memory for each rank. Afterwards, all ranks have every rank's token.
  void barrier(std::uint32_t rank, std::byte* tokens) const;

 private:
  ncclComm_t comm_;
  cudaStream_t stream_;
};

/// Copies between device memory and pinned memory, in either direction. Throws TransportError.
void enqueue_copy(std::byte* destination, const std::byte* source, std::uint64_t bytes,
                  device::Queue& queue);

/// Starts at the first call of `done` at which the communicator is ready. If it is destroyed before
/// `done` was true, its work may never end: the group is then aborted and, unless that ended the
/// work, the device's memory is never freed, since NCCL kernels may still write to it.
class NcclOperation {
 public:
  using Enqueue = std::function<void(const NcclCalls&)>;
  using Fetch = std::function<void(device::Queue&)>;

  /// `queue` must outlive the operation. `enqueue` makes the calls, all in one group; `fetch`
  /// enqueues the work after the group, such as copying the gathered data to the host.
  NcclOperation(std::shared_ptr<NcclGroup> group, device::Queue& queue, Enqueue enqueue,
                Fetch fetch);
  ~NcclOperation();
  NcclOperation(const NcclOperation&) = delete;
  NcclOperation& operator=(const NcclOperation&) = delete;

  /// Advances it; true once everything is done on the device. Throws TransportError, or
  /// TimeoutError if NCCL reports a lost peer.
  bool done();

 private:
  void begin();

  std::shared_ptr<NcclGroup> group_;
  device::Queue& queue_;
  Enqueue enqueue_;
  Fetch fetch_;
  bool begun_ = false;
  bool fetching_ = false;
  bool done_ = false;
};

/// Largest piece that NCCL moves at full speed, in bytes. It loses 12 to 15 % of its speed above 64
/// MiB per operation on 8 ranks (NVIDIA/nccl issue 2169), and half of it below 16 KiB per channel,
/// where its low-latency protocol begins.
inline constexpr std::uint64_t best_nccl_bytes = std::uint64_t{64} << 20;

/// Maximum number of pieces of one transfer; larger transfers have larger pieces. Each rank splits
/// a group larger than one kernel, about 250 batches, by itself: before NCCL 2.29.7, ranks with
/// different transfers could then deadlock. On 8 ranks, the first pieces of all transfers are one
/// batch on each of up to 32 channels, the second pieces another, and so on.
inline constexpr std::uint64_t most_nccl_pieces = 4;

/// Bytes of each piece except the last, which has the rest: as equal as possible, a multiple of 16.
/// `bytes` > 0.
std::uint64_t nccl_piece_bytes(std::uint64_t bytes) noexcept;

}  // namespace safeshuffle::comm
