#include "comm/exchange/mpi_transport.hpp"

#include <limits>
#include <utility>

#include "comm/mpi/mpi_operation.hpp"

namespace safeshuffle::comm {
namespace {

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

  std::uint8_t least_vote() const override { return operation_.least_vote(); }

  std::size_t progress() const noexcept override { return operation_.progress(); }

  std::vector<std::uint32_t> missing() const override { return operation_.missing(); }

 private:
  void send() {
    for (const Message& message : exchange_.sends) {
      operation_.send(message.peer, message.data, message.bytes, MpiTag::run);
    }
    for (const Message& message : exchange_.broadcasts) {
      operation_.broadcast(message.peer, message.data, message.bytes);
    }
    operation_.barrier(exchange_.vote);
    sent_ = true;
  }

  Exchange exchange_;
  device::Queue& queue_;
  MpiOperation operation_;
  bool sent_ = false;
};

class MpiTransport final : public Transport {
 public:
  MpiTransport(std::shared_ptr<MpiGroup> group, std::uint64_t piece)
      : group_(std::move(group)), piece_(piece) {}

  std::string name() const override { return "mpi"; }

  std::unique_ptr<Pending> exchange(Exchange exchange, device::Queue& queue) override {
    group_->require_usable();
    return std::make_unique<MpiPending>(group_, piece_, std::move(exchange), queue);
  }

 private:
  std::shared_ptr<MpiGroup> group_;
  std::uint64_t piece_;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(std::shared_ptr<MpiGroup> group,
                                              std::uint64_t piece) {
  constexpr std::uint64_t most = std::numeric_limits<int>::max();
  if (piece == 0 || piece > most) {
    throw ConfigError("MPI messages must have 1 to " + std::to_string(most) + " bytes, not " +
                      std::to_string(piece));
  }
  return std::make_unique<MpiTransport>(std::move(group), piece);
}

}  // namespace safeshuffle::comm
