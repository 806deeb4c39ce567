// Packing with the pack kernel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <memory>

#include "device/cuda/pack_entry.hpp"
#include "device/cuda/session.hpp"
#include "device/device.hpp"

namespace safeshuffle::device {

/// The constructor allocates everything and loads the kernel: neither may happen while NCCL kernels
/// run. One kernel per table of up to `most_items` items, more for longer ones.
class CudaPacker final : public Packer {
 public:
  static constexpr std::size_t most_items = std::size_t{1} << 14;

  /// Device memory that it holds: there are two tables, so that one may be filled while the other
  /// is still read.
  static constexpr std::uint64_t bytes = 2 * most_items * sizeof(PackEntry);

  /// Throws MemoryError, TransportError.
  CudaPacker(SharedSession session, cudaStream_t stream);

  /// For long tables, waits until the last but one of the queue's kernels has ended.
  void pack(std::span<const PackItem> items, const PackBuffers& buffers) override;

  void zero(std::byte* destination, std::uint64_t rows, std::uint64_t row_bytes,
            std::uint64_t stride) override;

 private:
  /// On its way to the kernel.
  struct Table {
    std::shared_ptr<std::byte> pinned;
    std::shared_ptr<std::byte> on_gpu;
    Event free;
  };

  Table& next_table();
  void launch(std::span<const PackItem> items, const PackBuffers& buffers);

  SharedSession session_;
  cudaStream_t stream_;
  std::array<Table, 2> tables_;
  std::size_t turn_ = 0;
};

}  // namespace safeshuffle::device
