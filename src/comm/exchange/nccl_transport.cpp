#include "comm/exchange/nccl_transport.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/exchange/nccl_operation.hpp"

namespace safeshuffle::comm {
namespace {

/// Channels of a communicator that the caller has configured: NCCL's maximum for point to point.
constexpr int foreign_channels = 32;

constexpr std::uint64_t token_bytes = NcclCalls::token_bytes;

void enqueue(const Exchange& exchange, const NcclCalls& calls) {
  for (const Message& run : exchange.receives) calls.receive(run.peer, run.data, run.bytes);
  for (const Message& run : exchange.sends) calls.send(run.peer, run.data, run.bytes);
  for (const Message& run : exchange.broadcasts) calls.broadcast(run.peer, run.data, run.bytes);
}

/// The tokens of a barrier in pinned memory, each of which begins with a vote: this rank's, and the
/// gathered ones of all.
class Votes {
 public:
  Votes(std::byte* pinned, std::uint32_t size) : pinned_(pinned), size_(size) {}

  static std::uint64_t bytes(std::uint32_t size) { return token_bytes * (1 + size); }

  /// Makes this rank's token, and returns it. No barrier may be in progress.
  const std::byte* make_mine(std::uint8_t vote) const {
    *pinned_ = std::byte{vote};
    return pinned_;
  }

  std::byte* all() const { return pinned_ + token_bytes; }

  std::uint8_t least() const {
    std::uint8_t least = std::to_integer<std::uint8_t>(*all());
    for (std::uint32_t rank = 1; rank < size_; ++rank) {
      least = std::min(least, std::to_integer<std::uint8_t>(all()[token_bytes * rank]));
    }
    return least;
  }

 private:
  std::byte* pinned_;
  std::uint32_t size_;
};

/// A wave: one group, on the stream that packed its data.
class NcclPending final : public Pending {
 public:
  /// `tokens`: on the device, one per rank.
  NcclPending(const std::shared_ptr<NcclGroup>& group, Exchange exchange, std::byte* tokens,
              Votes votes, device::Queue& queue)
      : exchange_(std::move(exchange)),
        votes_(votes),
        operation_(
            group, queue,
            [this, rank = group->rank(), tokens](const NcclCalls& calls) {
              enqueue(exchange_, calls);
              calls.barrier(rank, tokens);
            },
            [this, bytes = token_bytes * group->size(), tokens](device::Queue& after) {
              enqueue_copy(votes_.all(), tokens, bytes, after);
            }) {
    const device::GpuScope scope(group->gpu());
    enqueue_copy(tokens + token_bytes * group->rank(), votes_.make_mine(exchange_.vote),
                 token_bytes, queue);
  }

  bool done() override { return operation_.done(); }
  std::uint8_t least_vote() const override { return votes_.least(); }

 private:
  Exchange exchange_;
  Votes votes_;
  NcclOperation operation_;
};

class NcclTransport final : public Transport {
 public:
  NcclTransport(std::shared_ptr<NcclGroup> group, NcclBuffers buffers)
      : group_(std::move(group)), buffers_(std::move(buffers)) {}

  std::string name() const override { return "nccl"; }

  std::uint64_t device_bytes() const noexcept override {
    return nccl_buffer_bytes(group_->size(), group_->owned() ? most_channels : foreign_channels) +
           buffers_.tokens_bytes;
  }

  std::unique_ptr<Pending> connect(device::Queue& queue) override {
    if (std::exchange(connected_, true)) return nullptr;
    return exchange(greetings(), queue);
  }

  std::unique_ptr<Pending> exchange(Exchange exchange, device::Queue& queue) override {
    group_->require_usable();
    const Votes votes(buffers_.votes.get(), group_->size());
    return std::make_unique<NcclPending>(group_, std::move(exchange), token(2 * group_->size()),
                                         votes, queue);
  }

 private:
  /// A few bytes between all pairs and from every root, because NCCL connects on first use.
  Exchange greetings() const {
    Exchange exchange;
    const std::uint32_t size = group_->size();
    for (std::uint32_t peer = 0; peer < size; ++peer) {
      exchange.broadcasts.push_back({peer, token(peer), token_bytes});
      if (peer == group_->rank()) continue;
      exchange.sends.push_back({peer, token(group_->rank()), token_bytes});
      exchange.receives.push_back({peer, token(size + peer), token_bytes});
    }
    return exchange;
  }

  std::byte* token(std::uint32_t index) const {
    return buffers_.tokens.get() + token_bytes * index;
  }

  std::shared_ptr<NcclGroup> group_;
  NcclBuffers buffers_;
  bool connected_ = false;
};

}  // namespace

NcclBuffers::NcclBuffers(std::shared_ptr<device::CudaDevice> on, std::uint32_t size)
    : device(std::move(on)),
      tokens_bytes(token_bytes * 3 * size),
      tokens(device->allocate(tokens_bytes)),
      votes(device::allocate_pinned(device->session(), Votes::bytes(size))) {
  std::memset(votes.get(), 0, Votes::bytes(size));
}

std::unique_ptr<Transport> make_nccl_transport(std::shared_ptr<NcclGroup> group,
                                               NcclBuffers buffers) {
  return std::make_unique<NcclTransport>(std::move(group), std::move(buffers));
}

}  // namespace safeshuffle::comm
