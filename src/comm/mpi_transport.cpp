#include "comm/mpi_transport.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "comm/lost_peers.hpp"
#include "comm/mpi_group.hpp"
#include "comm/mpi_operation.hpp"
#include "core/backoff.hpp"

namespace safeshuffle::comm {
namespace {

/// Large enough for speed, small enough that one takes less than any time-out.
constexpr std::uint64_t text_piece = std::uint64_t{4} << 20;

/// Waits until the operation is done. Throws if there is no progress for as long as the deadline
/// allows.
void wait(MpiOperation& operation, const std::string& what, core::Deadline deadline) {
  deadline.restart();
  core::Deadline look(deadline.limit() / 8);
  core::Backoff backoff;
  for (std::size_t progress = 0; !operation.done();) {
    if (look.expired()) {
      const std::size_t before = std::exchange(progress, operation.progress());
      if (progress > before) deadline.restart();
      look.restart();
    }
    if (deadline.expired()) raise_lost_peers(what, operation.missing(), deadline.limit());
    backoff.pause();
  }
}

/// A wave: starts receives at once, everything else when the data to send has been packed.
class MpiPending final : public Pending {
 public:
  MpiPending(std::shared_ptr<MpiGroup> group, std::uint64_t piece, Exchange exchange,
             device::Queue& queue)
      : exchange_(std::move(exchange)),
        queue_(queue),
        operation_(std::move(group), piece, exchange_.keep_alive) {
    for (const Message& message : exchange_.receives) {
      operation_.receive(message.peer, message.data, message.bytes, MpiTag::run);
    }
  }

  bool done() override {
    if (!sent_) {
      if (!queue_.idle()) return false;
      send();
    }
    return operation_.done();
  }

  bool failed() const override { return operation_.any_raised(); }

  std::vector<std::uint32_t> missing() const override { return operation_.missing(); }

 private:
  void send() {
    for (const Message& message : exchange_.sends) {
      operation_.send(message.peer, message.data, message.bytes, MpiTag::run);
    }
    for (const Message& message : exchange_.broadcasts) {
      operation_.broadcast(message.peer, message.data, message.bytes);
    }
    operation_.barrier(exchange_.failed);
    sent_ = true;
  }

  Exchange exchange_;
  device::Queue& queue_;
  MpiOperation operation_;
  bool sent_ = false;
};

/// What an all_gather sends and receives.
struct Gathering {
  std::vector<std::uint64_t> sizes;
  std::vector<std::string> texts;
};

class MpiTransport final : public Transport {
 public:
  MpiTransport(MPI_Comm comm, std::chrono::milliseconds timeout, std::uint64_t piece)
      : group_(std::make_shared<MpiGroup>(comm, timeout)), piece_(piece) {}

  std::string name() const override { return "mpi"; }
  std::uint32_t rank() const noexcept override { return group_->rank(); }
  std::uint32_t size() const noexcept override { return group_->size(); }
  void check_thread() const override { require_mpi_thread(); }

  /// Point to point, so that a missing rank can be named.
  std::vector<std::string> all_gather(std::string_view mine, core::Deadline deadline) override {
    group_->require_usable();
    const auto gathering = std::make_shared<Gathering>();
    gathering->sizes.resize(size());
    gathering->sizes[rank()] = mine.size();
    gathering->texts.resize(size());
    gathering->texts[rank()] = mine;
    gather_sizes(gathering, deadline);
    gather_texts(gathering, deadline);
    return std::move(gathering->texts);
  }

  std::unique_ptr<Pending> exchange(Exchange exchange, device::Queue& queue) override {
    group_->require_usable();
    return std::make_unique<MpiPending>(group_, piece_, std::move(exchange), queue);
  }

 private:
  void gather_sizes(const std::shared_ptr<Gathering>& gathering, core::Deadline deadline) {
    std::vector<std::uint64_t>& sizes = gathering->sizes;
    MpiOperation operation(group_, piece_, gathering);
    for_each_peer([&](std::uint32_t peer) {
      operation.receive(peer, &sizes[peer], sizeof sizes[peer], MpiTag::size);
    });
    for_each_peer([&](std::uint32_t peer) {
      operation.send(peer, &sizes[rank()], sizeof sizes[rank()], MpiTag::size);
    });
    wait(operation, "gathering from all ranks", deadline);
  }

  void gather_texts(const std::shared_ptr<Gathering>& gathering, core::Deadline deadline) {
    std::vector<std::string>& texts = gathering->texts;
    MpiOperation operation(group_, std::min(piece_, text_piece), gathering);
    for_each_peer([&](std::uint32_t peer) {
      texts[peer].resize(gathering->sizes[peer]);
      operation.receive(peer, texts[peer].data(), texts[peer].size(), MpiTag::text);
    });
    for_each_peer([&](std::uint32_t peer) {
      operation.send(peer, texts[rank()].data(), texts[rank()].size(), MpiTag::text);
    });
    wait(operation, "gathering from all ranks", deadline);
  }

  /// Every other rank, in a different order on each rank, so that not all send to the same one
  /// first.
  template <typename Function>
  void for_each_peer(const Function& function) const {
    for (std::uint32_t step = 1; step < size(); ++step) function((rank() + step) % size());
  }

  std::shared_ptr<MpiGroup> group_;
  std::uint64_t piece_;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(MPI_Comm comm, std::chrono::milliseconds timeout,
                                              std::uint64_t piece) {
  constexpr std::uint64_t most = std::numeric_limits<int>::max();
  if (piece == 0 || piece > most) {
    throw ConfigError("MPI messages must have 1 to " + std::to_string(most) + " bytes, not " +
                      std::to_string(piece));
  }
  return std::make_unique<MpiTransport>(comm, timeout, piece);
}

}  // namespace safeshuffle::comm
