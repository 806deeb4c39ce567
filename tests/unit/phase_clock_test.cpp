// pipeline: time by phase.
#include "pipeline/phase_clock.hpp"

#include <numeric>
#include <string>
#include <vector>

#include "core/process.hpp"
#include "support/catch.hpp"

using namespace safeshuffle;
using pipeline::PhaseClock;
using pipeline::PhaseScope;

namespace {

void use_cpu(double seconds) {
  for (const double begin = core::cpu_seconds(); core::cpu_seconds() < begin + seconds;) continue;
}

}  // namespace

TEST_CASE("phases are traced in order, one that is entered again as one", "[clock]") {
  PhaseClock clock(Phase::plan, true);
  {
    const PhaseScope scope(clock, Phase::read);
    for (int poll = 0; poll < 3; ++poll) clock.enter(Phase::h2d);
  }
  const auto& seconds = clock.read();
  std::vector<std::string> names;
  double traced = 0;
  for (const Span& span : clock.spans()) {
    names.push_back(span.name);
    traced += span.seconds;
  }
  CHECK(names == std::vector<std::string>{"plan", "read", "h2d", "plan"});
  CHECK(std::accumulate(seconds.begin(), seconds.end(), 0.0) == Approx(traced));
}

TEST_CASE("CPU time counts except while the clock is paused", "[clock]") {
  PhaseClock clock(Phase::plan, false);
  use_cpu(0.02);
  clock.pause();
  use_cpu(0.1);
  clock.resume();
  use_cpu(0.02);
  CHECK(clock.cpu_seconds() >= 0.04);
  CHECK(clock.cpu_seconds() < 0.1);
}
