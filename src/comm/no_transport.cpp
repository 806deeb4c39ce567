#include "comm/no_transport.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "safeshuffle/error.hpp"

namespace safeshuffle::comm {
namespace {

/// Done once the queue is idle and all ranks have told each other whether they failed.
class Step final : public Pending {
 public:
  Step(Control& control, Exchange exchange, device::Queue& queue)
      : control_(control), exchange_(std::move(exchange)), queue_(queue) {}

  bool done() override {
    if (!queue_.idle()) return false;
    if (told_.empty()) {
      told_ = control_.all_gather(exchange_.failed ? "-" : "+", core::Deadline(exchange_.timeout));
    }
    return true;
  }

  bool failed() const override { return std::ranges::find(told_, "-") != told_.end(); }

 private:
  Control& control_;
  const Exchange exchange_;
  device::Queue& queue_;
  std::vector<std::string> told_;  // by rank
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
