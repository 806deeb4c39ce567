// Packing on a stream of its own.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "device/cuda/session.hpp"
#include "device/device.hpp"

namespace safeshuffle::device {

/// Everything it needs is allocated when it is made, the kernel loaded: neither may happen while
/// NCCL kernels run. One kernel per table of up to `most_items` items, more for longer ones.
class CudaQueue final : public Queue {
 public:
  static constexpr std::size_t most_items = std::size_t{1} << 14;

  /// Throws MemoryError, TransportError.
  explicit CudaQueue(SharedSession session);

  void pack(std::span<const PackItem> items, const PackBuffers& buffers) override;
  bool idle() override;
  void* native_handle() const noexcept override { return stream_.get(); }
  void abandon() noexcept override { session_->abandon(); }

  /// What is enqueued from now on comes after what is on `stream` now.
  void follow(cudaStream_t stream);

 private:
  /// A table on its way to the kernel. There are two, so that one may be filled while the other is
  /// still read.
  struct Table {
    std::shared_ptr<std::byte> pinned;
    std::shared_ptr<std::byte> on_gpu;
    Event free;
  };

  Table& next_table();
  void launch(std::span<const PackItem> items, const PackBuffers& buffers);

  SharedSession session_;
  Stream stream_;
  Event order_;
  std::array<Table, 2> tables_;
  std::size_t turn_ = 0;
};

}  // namespace safeshuffle::device
