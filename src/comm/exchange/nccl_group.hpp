// An NCCL communicator: the caller's, or the library's own.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <nccl.h>
#include <string>
#include <utility>

#include "device/cuda/gpu.hpp"

namespace safeshuffle::comm {

/// Refers to a borrowed communicator, or owns one that it created. Not thread-safe.
class NcclGroup {
 public:
  using SharedGpu = std::shared_ptr<const device::Gpu>;

  /// Never destroys, aborts or reconfigures `comm`, which must outlive the group; `gpu` is the GPU
  /// it was created on. Throws TransportError if the communicator has already failed.
  static std::shared_ptr<NcclGroup> borrow(ncclComm_t comm, SharedGpu gpu);

  /// Starts to set up a communicator; `ready` says when that has finished. Collective among the
  /// ranks with the same id, but waits for none of them.
  static std::shared_ptr<NcclGroup> create(const std::string& id, std::uint32_t rank,
                                           std::uint32_t size, SharedGpu gpu);

  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  ncclComm_t comm() const noexcept { return comm_; }
  std::uint32_t rank() const noexcept { return rank_; }
  std::uint32_t size() const noexcept { return size_; }
  bool owned() const noexcept { return owned_; }

  /// Must be current (GpuScope) during every call of NCCL, which restores the device it finds.
  const device::Gpu& gpu() const noexcept { return *gpu_; }

  /// See `is_ready`.
  bool ready() const;

  /// After an operation was abandoned. Aborts an owned communicator, which ends its work on the
  /// device; returns true if that succeeded within 5 s. A borrowed one is left to its owner.
  bool break_off() noexcept;

  /// Throws TransportError if broken.
  void require_usable() const;

  NcclGroup(ncclComm_t comm, std::uint32_t rank, std::uint32_t size, SharedGpu gpu, bool owned)
      : comm_(comm), rank_(rank), size_(size), gpu_(std::move(gpu)), owned_(owned) {}

 private:
  using Closing = ncclResult_t (*)(ncclComm_t);
  bool close(Closing how) const noexcept;
  bool finalize() const;
  bool becomes_ready(std::chrono::milliseconds patience) const;

  ncclComm_t comm_;
  std::uint32_t rank_;
  std::uint32_t size_;
  SharedGpu gpu_;
  bool owned_;
  bool broken_ = false;
};

/// The bytes of an ncclUniqueId: made by one rank, told to all that create a group together.
std::string make_nccl_id();

/// Maximum number of channels, and thus of blocks and buffers, of the communicators created here: a
/// load is limited by storage and PCIe long before these.
inline constexpr int most_channels = 8;

/// Device memory that NCCL takes when a group of `size` first exchanges between all pairs: 10 MiB
/// of buffers and 2 MiB for point to point, per peer and channel, and as much per channel for the
/// ring of the collectives (NCCL 2.28's defaults; 2.6 GiB has been observed on 8 ranks with 32
/// channels). An upper bound: peers on other nodes take less. NCCL before 2.22 also sets up trees
/// and NVLS, whether they are used or not.
std::uint64_t nccl_buffer_bytes(std::uint32_t size, int channels) noexcept;

}  // namespace safeshuffle::comm
