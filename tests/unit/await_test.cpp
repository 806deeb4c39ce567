// comm: who is named if an exchange does not end, with an invented exchange and control.
#include "comm/await.hpp"

#include <sys/resource.h>

#include "safeshuffle/error.hpp"

#include "core/deadline.hpp"
#include "support/catch.hpp"

using namespace safeshuffle;
using namespace std::chrono_literals;

namespace {

/// Is done after some polls; never, or with an error, if so told.
struct TestPending final : comm::Pending {
  bool done() override {
    if (error) throw TimeoutError(*error);
    return polls-- == 0;
  }
  std::uint8_t least_vote() const override { return 1; }
  std::size_t progress() const noexcept override {
    return polls_per_piece == 0 ? 0 : static_cast<std::size_t>(polls / polls_per_piece);
  }
  std::vector<std::uint32_t> missing() const override { return known; }

  int polls = -1;
  int polls_per_piece = 0;  // 0: shows no progress
  std::optional<ErrorRecord> error;
  std::vector<std::uint32_t> known;
};

/// Of a group in which `lost` does not answer.
class TestControl final : public comm::Control {
 public:
  explicit TestControl(int lost) : Control(0, 8), lost_(lost) {}
  std::string name() const override { return "test"; }
  std::vector<std::string> all_gather(std::string_view, core::Deadline) override {
    ++asked;
    if (lost_ >= 0) throw TimeoutError(ErrorRecord{.rank = lost_});
    return std::vector<std::string>(size());
  }
  int asked = 0;

 private:
  int lost_;
};

ErrorRecord error_of(TestPending& pending, comm::Control& control) {
  try {
    comm::await(pending, control, "it", 1ms, [] {});
  } catch (const TimeoutError& error) {
    return error.record();
  }
  FAIL("no exception");
  return {};
}

/// How often this thread has waited; giving way to others (sched_yield) does not count.
long times_slept() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

}  // namespace

TEST_CASE("an exchange that ends is awaited, and nobody is asked", "[comm]") {
  TestPending pending;
  pending.polls = 100;
  TestControl control(3);
  int meanwhile = 0;
  comm::await(pending, control, "it", 20s, [&] { ++meanwhile; });
  CHECK(meanwhile == 100);
  CHECK(control.asked == 0);
}

TEST_CASE("between polls of an exchange that makes progress, the thread does not sleep", "[comm]") {
  const auto sleeps = [](int polls_per_piece) {
    TestPending pending;
    pending.polls = 2000;
    pending.polls_per_piece = polls_per_piece;
    TestControl control(3);
    const long before = times_slept();
    comm::await(pending, control, "it", 20s, [] {});
    return times_slept() - before;
  };
  CHECK(sleeps(0) > 1000);
  CHECK(sleeps(20) < 100);
}

TEST_CASE("peers that the exchange misses are named without asking", "[comm]") {
  TestPending pending;
  pending.known = {5, 6};
  TestControl control(3);
  const ErrorRecord error = error_of(pending, control);
  CHECK(error.rank == 5);
  CHECK(error.cause == "it: no answer within 0.001 s from ranks 5, 6");
  CHECK(control.asked == 0);
}

TEST_CASE("a peer that the exchange cannot name is the one that does not answer", "[comm]") {
  TestPending pending;
  TestControl control(3);
  CHECK(error_of(pending, control).rank == 3);
}

TEST_CASE("a peer that the exchange only knows to be lost is named, too", "[comm]") {
  TestPending pending;
  pending.error = ErrorRecord{.code = 6, .cause = "remote error"};
  TestControl control(3);
  const ErrorRecord error = error_of(pending, control);
  CHECK(error.rank == 3);
  CHECK(error.code == 6);
  CHECK(error.cause == "remote error");
  TestControl all_there(-1);
  CHECK(error_of(pending, all_there).rank == -1);
}
