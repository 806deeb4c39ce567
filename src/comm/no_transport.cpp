#include "comm/no_transport.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "safeshuffle/error.hpp"

namespace safeshuffle::comm {
namespace {

/// Done once the queue is idle and all ranks have told each other their votes.
class Step final : public Pending {
 public:
  Step(Control& control, Exchange exchange, device::Queue& queue)
      : control_(control), exchange_(std::move(exchange)), queue_(queue) {}

  bool done() override {
    if (!queue_.idle()) return false;
    if (votes_.empty()) {
      const char vote = static_cast<char>(exchange_.vote);
      votes_ = control_.all_gather({&vote, 1}, core::Deadline(exchange_.timeout));
      const auto is_vote = [](const std::string& text) { return text.size() == 1; };
      if (!std::ranges::all_of(votes_, is_vote)) {
        throw TransportError("what was gathered is not of the call that all ranks are in");
      }
    }
    return true;
  }

  std::uint8_t least_vote() const override {
    return static_cast<std::uint8_t>(std::ranges::min(votes_).front());
  }

 private:
  Control& control_;
  const Exchange exchange_;
  device::Queue& queue_;
  std::vector<std::string> votes_;  // by rank
};

class NoTransport final : public Transport {
 public:
  explicit NoTransport(std::shared_ptr<Control> control) : control_(std::move(control)) {}

  std::string name() const override { return "none"; }
  bool moves_data() const noexcept override { return false; }

  std::unique_ptr<Pending> exchange(Exchange exchange, device::Queue& queue) override {
    if (!exchange.sends.empty() || !exchange.receives.empty() || !exchange.broadcasts.empty()) {
      throw ConfigError("these ranks cannot send each other data: on the host, that takes MPI");
    }
    return std::make_unique<Step>(*control_, std::move(exchange), queue);
  }

 private:
  const std::shared_ptr<Control> control_;
};

}  // namespace

std::unique_ptr<Transport> make_no_transport(std::shared_ptr<Control> control) {
  return std::make_unique<NoTransport>(std::move(control));
}

}  // namespace safeshuffle::comm
