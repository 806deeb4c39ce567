// Control messages over NCCL, for groups that have nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/nccl_group.hpp"
#include "core/deadline.hpp"
#include "device/cuda/cuda_device.hpp"

namespace safeshuffle::comm {

/// Gathers texts through buffers that are allocated when it is made, on a queue of its own. Not
/// thread-safe.
class NcclGather {
 public:
  /// `device` must be the group's GPU. Throws MemoryError, TransportError.
  NcclGather(std::shared_ptr<NcclGroup> group, device::CudaDevice& device);

  /// As Transport::all_gather.
  std::vector<std::string> all_gather(std::string_view mine, core::Deadline deadline);

  /// Device memory held, in bytes.
  std::uint64_t device_bytes() const noexcept;

 private:
  std::vector<std::uint64_t> gather_sizes(std::uint64_t mine, const core::Deadline& deadline);
  void gather(std::string_view mine, std::uint64_t bytes, const core::Deadline& deadline);
  std::string_view gathered(std::size_t rank, std::uint64_t bytes) const;

  std::shared_ptr<NcclGroup> group_;
  std::uint64_t chunk_;  ///< most bytes of one rank in one round
  std::unique_ptr<device::Queue> queue_;
  std::shared_ptr<std::byte> mine_;         // on the device
  std::shared_ptr<std::byte> all_;          // on the device
  std::shared_ptr<std::byte> pinned_mine_;  // on the host
  std::shared_ptr<std::byte> pinned_all_;   // on the host
};

}  // namespace safeshuffle::comm
