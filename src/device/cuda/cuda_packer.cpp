#include "device/cuda/cuda_packer.hpp"

#include <algorithm>
#include <utility>

#include "device/cuda/call.hpp"
#include "device/cuda/pack_kernel.hpp"
#include "device/cuda/pack_table.hpp"

namespace safeshuffle::device {
namespace {

/// What cudaMemset2DAsync takes on every GPU so far (cudaDeviceProp::memPitch).
constexpr std::uint64_t longest_pitch = 0x7fffffff;

}  // namespace

CudaPacker::CudaPacker(SharedSession session, cudaStream_t stream)
    : session_(std::move(session)), stream_(stream) {
  constexpr std::uint64_t table_bytes = bytes / std::tuple_size_v<decltype(tables_)>;
  for (Table& table : tables_) {
    table = {allocate_pinned(session_, table_bytes), allocate_on_gpu(session_, table_bytes),
             make_event(session_)};
  }
  const GpuScope scope(session_->gpu());
  check_cuda(load_pack_kernel(stream_), "loading the pack kernel");
}

void CudaPacker::pack(std::span<const PackItem> items, const PackBuffers& buffers) {
  const GpuScope scope(session_->gpu());
  while (!items.empty()) {
    const std::size_t count = std::min(items.size(), most_items);
    launch(items.first(count), buffers);
    items = items.subspan(count);
  }
}

void CudaPacker::zero(std::byte* destination, std::uint64_t rows, std::uint64_t row_bytes,
                      std::uint64_t stride) {
  const GpuScope scope(session_->gpu());
  if (rows > 1 && stride <= longest_pitch) {
    check_cuda(cudaMemset2DAsync(destination, stride, 0, row_bytes, rows, stream_),
               "cudaMemset2DAsync");
    return;
  }
  for (std::uint64_t row = 0; row < rows; ++row) {
    check_cuda(cudaMemsetAsync(destination + row * stride, 0, row_bytes, stream_),
               "cudaMemsetAsync");
  }
}

CudaPacker::Table& CudaPacker::next_table() {
  Table& table = tables_[turn_++ % tables_.size()];
  wait_for(table.free);  // cannot hang: only kernels of this queue
  return table;
}

void CudaPacker::launch(std::span<const PackItem> items, const PackBuffers& buffers) {
  Table& table = next_table();
  const std::span entries(reinterpret_cast<PackEntry*>(table.pinned.get()), items.size());
  const std::uint64_t tiles = make_pack_entries(items, buffers, entries);
  check_cuda(cudaMemcpyAsync(table.on_gpu.get(), entries.data(), entries.size_bytes(),
                             cudaMemcpyHostToDevice, stream_),
             "cudaMemcpyAsync");
  check_cuda(launch_pack(reinterpret_cast<const PackEntry*>(table.on_gpu.get()),
                         static_cast<std::uint32_t>(items.size()), tiles, stream_),
             "launching the pack kernel");
  record(table.free, stream_);
}

}  // namespace safeshuffle::device
