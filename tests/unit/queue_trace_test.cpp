// pipeline: the timeline of a queue by the clock of the host.
#include "pipeline/queue_trace.hpp"

#include <chrono>
#include <memory>
#include <thread>

#include "pipeline/phase_clock.hpp"
#include "support/catch.hpp"

using namespace safeshuffle;
using namespace safeshuffle::pipeline;

namespace {

using Clock = core::Clock;

/// Does its work when that is enqueued, and tells the time of it by another clock than the host's.
class PromptQueue final : public device::Queue {
 public:
  class Mark final : public device::QueueMark {
   public:
    double seconds_until(const QueueMark& later) const override {
      return std::chrono::duration<double>(static_cast<const Mark&>(later).time_ - time_).count();
    }

   private:
    const Clock::time_point time_ = Clock::now() + std::chrono::hours(1);
  };

  bool idle() override { return true; }
  std::unique_ptr<device::QueueMark> mark() override { return std::make_unique<Mark>(); }
};

constexpr std::chrono::milliseconds lag{100};
/// Seconds. A mark that is seen a whole lag late is misread by half of it.
constexpr double most_error = 0.02;

}  // namespace

TEST_CASE("of several marks, the one that is seen soonest sets the clock of a queue", "[trace]") {
  PromptQueue queue;
  PhaseClock clock(Phase::pack, true);
  QueueTrace trace(queue, clock);
  trace.begin();
  std::this_thread::sleep_for(lag);
  const double earliest = clock.elapsed();
  trace.note("pack", 0);
  const double latest = clock.elapsed();
  // One look in four at the queue comes soon.
  int looks = 0;
  trace.settle([&] {
    if (++looks % 4 != 0) std::this_thread::sleep_for(lag);
  });
  const Span span = clock.spans().back();
  CHECK(span.name == "pack 0");
  CHECK(span.track == Span::Track::stream);
  CHECK(span.seconds >= std::chrono::duration<double>(lag).count());
  const double end = span.begin + span.seconds;
  CHECK(end > earliest - most_error);
  CHECK(end < latest + most_error);
}

TEST_CASE("a queue of which nothing was noted is not waited for", "[trace]") {
  PromptQueue queue;
  PhaseClock clock(Phase::pack, true);
  QueueTrace trace(queue, clock);
  trace.begin();
  trace.settle([] { FAIL("nothing to settle"); });
  CHECK(clock.spans().empty());
}
