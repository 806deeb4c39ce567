// One collective call at a time on a communicator: a second one is refused, the first unharmed.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "safeshuffle/loader.hpp"

#include "comm/control/agreement.hpp"
#include "comm/control/control.hpp"
#include "support/catch.hpp"
#include "support/own_model.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

bool is_busy(const ConfigError& error) {
  return error.record().cause.find("the communicator has another operation in progress") == 0;
}

/// Whether the call is refused because another one is in progress.
bool is_refused(const std::function<void()>& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return is_busy(error);
  }
  return false;
}

/// Every collective call, on `comm`.
std::vector<std::function<void()>> calls(const OwnModel& model, const TensorSet& loaded,
                                         const Communicator& comm) {
  return {[&, comm] { load(model.plan(), comm); },
          [&, comm] { load(model.directory.path().string(), comm); },
          [&, comm] { verify(loaded, comm); },
          [&, comm] { save_sharded(loaded, model.directory.path() / "saved", comm); }};
}

void in_this_thread(const std::function<void()>& work) {
  work();
}

void in_another_thread(const std::function<void()>& work) {
  std::thread(work).join();
}

}  // namespace

TEST_CASE("during a collective call others are refused, and it goes on", "[comm]") {
  const OwnModel model(2);
  const Communicator comm = self();
  const TensorSet earlier = load(model.plan(), comm);
  const auto run = GENERATE(in_this_thread, in_another_thread);
  std::size_t refused = 0;
  Options options;
  options.on_progress = [&](const Progress&) {
    if (refused != 0) return;
    run([&] {
      for (const auto& call : calls(model, earlier, comm)) refused += std::size_t{is_refused(call)};
    });
  };
  const std::size_t all = calls(model, earlier, comm).size();
  const TensorSet loaded = load(model.plan(), comm, options);
  CHECK(refused == all);
  CHECK(is_right(loaded, 0));
  refused = 0;
  CHECK_NOTHROW(verify(loaded, comm, options));
  CHECK(refused == all);
  CHECK_FALSE(std::filesystem::exists(model.directory.path() / "saved"));
}

TEST_CASE("another communicator may be used meanwhile", "[comm]") {
  const OwnModel model(2);
  std::optional<TensorSet> other;
  Options options;
  options.on_progress = [&](const Progress&) {
    if (!other) other = load(model.plan(), self());
  };
  CHECK(is_right(load(model.plan(), self(), options), 0));
  REQUIRE(other);
  CHECK(is_right(*other, 0));
}

TEST_CASE("a call that fails leaves the communicator to the next one", "[comm]") {
  const OwnModel model(2);
  const Communicator comm = self();
  CHECK_THROWS_AS(load("/nothing/of/the/kind", comm), IoError);
  CHECK(is_right(load(model.plan(), comm), 0));
}

TEST_CASE("of threads that load at once, each succeeds or is refused", "[comm]") {
  const OwnModel model(2);
  const Communicator comm = self();
  const Plan plan = model.plan();
  std::atomic<int> right = 0;
  std::atomic<int> refused = 0;
  constexpr int rounds = 20;
  const auto work = [&, comm] {
    for (int round = 0; round < rounds; ++round) {
      try {
        if (is_right(load(plan, comm), 0)) ++right;
      } catch (const ConfigError& error) {
        if (is_busy(error)) ++refused;
      }
    }
  };
  std::thread one(work);
  std::thread two(work);
  one.join();
  two.join();
  CHECK(right > 0);
  CHECK(right + refused == 2 * rounds);
}

TEST_CASE("a request to cancel is obeyed by a rank that learns of another one's", "[cancel]") {
  const auto control = comm::make_self_control();
  const auto flag = std::make_shared<CancelFlag>(15);
  control->set_cancel(flag);
  const ErrorRecord of_another{.kind = ErrorKind::cancelled, .cause = "the call was cancelled"};
  CHECK_THROWS_AS(comm::agree(*control, {}, of_another, std::chrono::seconds(1)), CancelledError);
  CHECK(*flag == 0);
}
