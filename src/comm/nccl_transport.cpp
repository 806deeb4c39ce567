#include "comm/nccl_transport.hpp"

#include <cstring>
#include <utility>

#include "comm/lost_peers.hpp"
#include "comm/nccl_operation.hpp"
#include "core/backoff.hpp"

namespace safeshuffle::comm {
namespace {

/// Channels of a communicator that the caller has configured: NCCL's maximum for point to point.
constexpr int foreign_channels = 32;

constexpr std::uint64_t token_bytes = NcclCalls::token_bytes;

/// The ranks that no longer answer; only the first of them is known.
std::vector<std::uint32_t> unresponsive_ranks(Transport& control) {
  // Ranks that start an exchange together time out within this interval of each other.
  constexpr std::chrono::milliseconds patience{1500};
  try {
    control.all_gather("", core::Deadline(patience));
  } catch (const TimeoutError& error) {
    if (error.record().rank >= 0) return {static_cast<std::uint32_t>(error.record().rank)};
  } catch (const TransportError&) {  // then no rank can be named
  }
  return {};
}

void enqueue(const Exchange& exchange, const NcclCalls& calls) {
  for (const Message& run : exchange.receives) calls.receive(run.peer, run.data, run.bytes);
  for (const Message& run : exchange.sends) calls.send(run.peer, run.data, run.bytes);
  for (const Message& run : exchange.broadcasts) calls.broadcast(run.peer, run.data, run.bytes);
}

/// The tokens of barriers in pinned memory: the two constant ones that a rank may contribute, and
/// the gathered ones of all ranks.
class Signals {
 public:
  Signals(std::byte* pinned, std::uint32_t size) : pinned_(pinned), size_(size) {}

  static std::uint64_t bytes(std::uint32_t size) { return token_bytes * (2 + size); }

  /// Before the first use.
  void initialise() const {
    std::memset(pinned_, 0, bytes(size_));
    *(pinned_ + token_bytes) = raised;
  }

  const std::byte* mine(bool failed) const { return pinned_ + (failed ? token_bytes : 0); }
  std::byte* all() const { return pinned_ + 2 * token_bytes; }

  bool any_raised() const {
    for (std::uint32_t rank = 0; rank < size_; ++rank) {
      if (all()[token_bytes * rank] == raised) return true;
    }
    return false;
  }

 private:
  static constexpr std::byte raised{1};

  std::byte* pinned_;
  std::uint32_t size_;
};

/// A wave: one group, on the stream that packed its data.
class NcclPending final : public Pending {
 public:
  /// `tokens`: on the device, one per rank.
  NcclPending(const std::shared_ptr<NcclGroup>& group, Exchange exchange, std::byte* tokens,
              Signals signals, device::Queue& queue, Transport* control)
      : exchange_(std::move(exchange)),
        signals_(signals),
        control_(control),
        operation_(
            group, queue,
            [this, rank = group->rank(), tokens](const NcclCalls& calls) {
              enqueue(exchange_, calls);
              calls.barrier(rank, tokens);
            },
            [this, bytes = token_bytes * group->size(), tokens](device::Queue& after) {
              enqueue_copy(signals_.all(), tokens, bytes, after);
            }) {
    const device::GpuScope scope(group->gpu());
    enqueue_copy(tokens + token_bytes * group->rank(), signals_.mine(exchange_.failed), token_bytes,
                 queue);
  }

  bool done() override { return operation_.done(); }
  bool failed() const override { return signals_.any_raised(); }

  std::vector<std::uint32_t> missing() const override {
    return control_ == nullptr ? std::vector<std::uint32_t>() : unresponsive_ranks(*control_);
  }

 private:
  Exchange exchange_;
  Signals signals_;
  Transport* control_;
  NcclOperation operation_;
};

class NcclTransport final : public Transport {
 public:
  NcclTransport(std::shared_ptr<NcclGroup> group, NcclBuffers buffers,
                std::shared_ptr<Transport> control)
      : group_(std::move(group)), buffers_(std::move(buffers)), control_(std::move(control)) {}

  std::string name() const override { return control_ ? "nccl+" + control_->name() : "nccl"; }
  std::uint32_t rank() const noexcept override { return group_->rank(); }
  std::uint32_t size() const noexcept override { return group_->size(); }

  void check_thread() const override {
    if (control_) control_->check_thread();
  }

  std::uint64_t device_bytes() const noexcept override {
    return nccl_buffer_bytes(size(), group_->owned() ? most_channels : foreign_channels) +
           buffers_.device_bytes();
  }

  std::vector<std::string> all_gather(std::string_view mine, core::Deadline deadline) override {
    return control_ ? control_->all_gather(mine, deadline)
                    : buffers_.gather->all_gather(group_, mine, deadline);
  }

  void connect(device::Queue& queue, core::Deadline deadline) override {
    const auto pending = exchange(greetings(), queue);
    core::Backoff backoff;
    while (!pending->done()) {
      if (deadline.expired()) {
        raise_lost_peers("connecting over NCCL", pending->missing(), deadline.limit());
      }
      backoff.pause();
    }
  }

  /// Starts at once if the communicator is already set up.
  std::unique_ptr<Pending> exchange(Exchange exchange, device::Queue& queue) override {
    group_->require_usable();
    const Signals signals(buffers_.signals.get(), size());
    auto pending = std::make_unique<NcclPending>(group_, std::move(exchange), token(2 * size()),
                                                 signals, queue, control_.get());
    pending->done();
    return pending;
  }

 private:
  /// A few bytes between all pairs and from every root, because NCCL connects on first use.
  Exchange greetings() const {
    Exchange exchange;
    for (std::uint32_t peer = 0; peer < size(); ++peer) {
      exchange.broadcasts.push_back({peer, token(peer), token_bytes});
      if (peer == rank()) continue;
      exchange.sends.push_back({peer, token(rank()), token_bytes});
      exchange.receives.push_back({peer, token(size() + peer), token_bytes});
    }
    return exchange;
  }

  std::byte* token(std::uint32_t index) const {
    return buffers_.tokens.get() + token_bytes * index;
  }

  std::shared_ptr<NcclGroup> group_;
  NcclBuffers buffers_;
  std::shared_ptr<Transport> control_;
};

}  // namespace

NcclBuffers::NcclBuffers(std::shared_ptr<device::CudaDevice> on, std::uint32_t size, bool gathers)
    : device(std::move(on)),
      tokens_bytes(token_bytes * 3 * size),
      tokens(device->allocate(tokens_bytes)),
      signals(device::allocate_pinned(device->session(), Signals::bytes(size))),
      gather(gathers ? std::make_unique<NcclGather>(*device, size) : nullptr) {
  Signals(signals.get(), size).initialise();
}

std::uint64_t NcclBuffers::device_bytes() const noexcept {
  return tokens_bytes + (gather ? gather->device_bytes() : 0);
}

std::unique_ptr<Transport> make_nccl_transport(std::shared_ptr<NcclGroup> group,
                                               NcclBuffers buffers,
                                               std::shared_ptr<Transport> control) {
  return std::make_unique<NcclTransport>(std::move(group), std::move(buffers), std::move(control));
}

}  // namespace safeshuffle::comm
