// Control messages over NCCL, for groups that have no other transport.
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

/// Gathers texts through buffers that its constructor allocates, on a queue of its own. Not
/// thread-safe.
class NcclGather {
 public:
  /// For groups of `size` ranks on `device`. Throws MemoryError, TransportError.
  NcclGather(device::CudaDevice& device, std::uint32_t size);

  /// As Transport::all_gather, over `group`.
  std::vector<std::string> all_gather(const std::shared_ptr<NcclGroup>& group,
                                      std::string_view mine, core::Deadline deadline);

  /// Device memory held, in bytes.
  std::uint64_t device_bytes() const noexcept;

 private:
  using SharedGroup = std::shared_ptr<NcclGroup>;

  std::vector<std::uint64_t> gather_sizes(const SharedGroup& group, std::uint64_t mine,
                                          const core::Deadline& deadline);
  void gather(const SharedGroup& group, std::string_view mine, std::uint64_t bytes,
              const core::Deadline& deadline);
  std::string_view gathered(std::size_t rank, std::uint64_t bytes) const;

  std::uint32_t size_;
  std::uint64_t chunk_;  ///< most bytes of one rank in one round
  std::unique_ptr<device::Queue> queue_;
  std::shared_ptr<std::byte> mine_;         // on the device
  std::shared_ptr<std::byte> all_;          // on the device
  std::shared_ptr<std::byte> pinned_mine_;  // on the host
  std::shared_ptr<std::byte> pinned_all_;   // on the host
};

}  // namespace safeshuffle::comm
