#include "comm/nccl_gather.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/lost_peers.hpp"
#include "comm/nccl_operation.hpp"
#include "core/arithmetic.hpp"
#include "core/backoff.hpp"

namespace safeshuffle::comm {
namespace {

constexpr std::uint64_t most_gathered = std::uint64_t{4} << 20;  // of all ranks in one round
constexpr std::uint64_t alignment = 16;

std::uint64_t chunk_of(std::uint32_t size) {
  return std::max(core::align_down(most_gathered / size, alignment), alignment);
}

}  // namespace

NcclGather::NcclGather(device::CudaDevice& device, std::uint32_t size)
    : size_(size),
      chunk_(chunk_of(size)),
      queue_(device.make_queue()),
      mine_(device.allocate(chunk_)),
      all_(device.allocate(chunk_ * size)),
      pinned_mine_(device::allocate_pinned(device.session(), chunk_)),
      pinned_all_(device::allocate_pinned(device.session(), chunk_ * size)) {}

std::uint64_t NcclGather::device_bytes() const noexcept {
  return chunk_ * (1 + size_);
}

std::vector<std::string> NcclGather::all_gather(const SharedGroup& group, std::string_view mine,
                                                core::Deadline deadline) {
  group->require_usable();
  const std::vector<std::uint64_t> sizes = gather_sizes(group, mine.size(), deadline);
  const std::uint64_t longest = *std::ranges::max_element(sizes);
  std::vector<std::string> texts(sizes.size());
  for (std::uint64_t begin = 0; begin < longest; begin += chunk_) {
    const std::uint64_t bytes = std::min(chunk_, core::align_up(longest - begin, alignment));
    gather(group, mine.substr(std::min<std::uint64_t>(begin, mine.size()), bytes), bytes, deadline);
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      const std::uint64_t rest = sizes[rank] - texts[rank].size();
      texts[rank] += gathered(rank, bytes).substr(0, rest);
    }
  }
  return texts;
}

std::vector<std::uint64_t> NcclGather::gather_sizes(const SharedGroup& group, std::uint64_t mine,
                                                    const core::Deadline& deadline) {
  const std::string_view text(reinterpret_cast<const char*>(&mine), sizeof mine);
  gather(group, text, alignment, deadline);
  std::vector<std::uint64_t> sizes(size_);
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    std::memcpy(&sizes[rank], gathered(rank, alignment).data(), sizeof mine);
  }
  return sizes;
}

// Gathers `bytes` of every rank in pinned memory; beyond a rank's own text they are unspecified.
void NcclGather::gather(const SharedGroup& group, std::string_view mine, std::uint64_t bytes,
                        const core::Deadline& deadline) {
  const device::GpuScope scope(group->gpu());
  std::memcpy(pinned_mine_.get(), mine.data(), mine.size());
  enqueue_copy(mine_.get(), pinned_mine_.get(), bytes, *queue_);
  NcclOperation operation(
      group, *queue_,
      [&](const NcclCalls& calls) { calls.all_gather(mine_.get(), all_.get(), bytes); },
      [&](device::Queue& queue) {
        enqueue_copy(pinned_all_.get(), all_.get(), bytes * size_, queue);
      });
  core::Backoff backoff;
  while (!operation.done()) {
    if (deadline.expired()) raise_lost_peers("gathering from all ranks", {}, deadline.limit());
    backoff.pause();
  }
}

std::string_view NcclGather::gathered(std::size_t rank, std::uint64_t bytes) const {
  return {reinterpret_cast<const char*>(pinned_all_.get()) + rank * bytes, bytes};
}

}  // namespace safeshuffle::comm
