#include "comm/control/control.hpp"

#include <exception>
#include <utility>

#include "safeshuffle/error.hpp"

namespace safeshuffle::comm {
namespace {

class SelfControl final : public Control {
 public:
  SelfControl() : Control(0, 1) {}

  std::string name() const override { return "self"; }

  std::vector<std::string> all_gather(std::string_view mine, core::Deadline) override {
    return {std::string(mine)};
  }
};

class CallersControl final : public Control {
 public:
  CallersControl(std::uint32_t rank, std::uint32_t size, AllGather gather)
      : Control(rank, size), gather_(std::move(gather)) {}

  std::string name() const override { return "caller"; }

  std::vector<std::string> all_gather(std::string_view mine, core::Deadline deadline) override {
    if (std::exchange(broken_, true)) {
      throw TransportError("the caller's all-gather has failed before");
    }
    std::vector<std::string> all = call(std::string(mine), deadline.limit());
    if (all.size() != size()) {
      throw TransportError("the caller's all-gather returned " + std::to_string(all.size()) +
                           " texts for " + std::to_string(size()) + " ranks");
    }
    broken_ = false;
    return all;
  }

 private:
  std::vector<std::string> call(const std::string& mine, std::chrono::milliseconds timeout) {
    try {
      return gather_(mine, timeout);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw TransportError(std::string("the caller's all-gather: ") + error.what());
    }
  }

  AllGather gather_;
  bool broken_ = false;
};

}  // namespace

static_assert(CancelFlag::is_always_lock_free);  // signal handlers set it

void Control::check_cancelled() {
  const std::int32_t why = cancel_ ? cancel_->exchange(0) : 0;
  if (why != 0) throw CancelledError(ErrorRecord{.code = why, .cause = "the call was cancelled"});
}

std::unique_ptr<Control> make_self_control() {
  return std::make_unique<SelfControl>();
}

std::unique_ptr<Control> make_callers_control(std::uint32_t rank, std::uint32_t size,
                                              AllGather gather) {
  return std::make_unique<CallersControl>(rank, size, std::move(gather));
}

std::vector<std::uint32_t> unresponsive_ranks(Control& control,
                                              std::chrono::milliseconds patience) {
  try {
    control.all_gather("", core::Deadline(patience));
  } catch (const TimeoutError& error) {
    if (error.record().rank >= 0) return {static_cast<std::uint32_t>(error.record().rank)};
  } catch (const TransportError&) {  // then no rank can be named
  }
  return {};
}

}  // namespace safeshuffle::comm
