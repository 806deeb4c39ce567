// How many waves of slices ranks read before they wait for each other.
#include "pipeline/steps.hpp"

#include <chrono>
#include <cstdint>

#include "support/catch.hpp"

using namespace safeshuffle;
using namespace std::chrono_literals;
using pipeline::Steps;

namespace {

plan::Schedule schedule_of(std::uint32_t exchanged_waves, std::uint32_t waves) {
  plan::Schedule schedule;
  schedule.exchanged_waves = exchanged_waves;
  schedule.waves = waves;
  return schedule;
}

const Steps::Time step_begin{};

/// With which wave the step ends that begins with `wave`.
std::uint32_t end_of(Steps& steps, std::uint32_t wave, std::uint8_t vote) {
  steps.begin(wave, vote, step_begin);
  std::uint32_t end = wave;
  while (!steps.ends_with(end)) ++end;
  return end;
}

}  // namespace

TEST_CASE("A step is one wave that is exchanged, or as many slices as was voted", "[steps]") {
  const plan::Schedule schedule = schedule_of(3, 20);
  Steps steps(schedule);
  CHECK(end_of(steps, 0, 9) == 0);
  CHECK(end_of(steps, 2, 9) == 2);
  CHECK(end_of(steps, 3, 1) == 3);
  CHECK(end_of(steps, 3, 9) == 11);
  CHECK(end_of(steps, 12, 9) == 19);  // the last
  CHECK(end_of(steps, 19, 1) == 19);
}

TEST_CASE("The next step shall take a second, but grows slowly", "[steps]") {
  const plan::Schedule schedule = schedule_of(0, 1000);
  Steps steps(schedule);
  steps.begin(0, 1, step_begin);
  CHECK(steps.vote(step_begin) == 2);
  CHECK(steps.vote(step_begin + 100ms) == 2);
  CHECK(steps.vote(step_begin + 600ms) == 1);
  CHECK(steps.vote(step_begin + 1h) == 1);
  steps.begin(1, 8, step_begin);
  CHECK(steps.vote(step_begin) == 16);
  CHECK(steps.vote(step_begin + 750ms) == 10);
  CHECK(steps.vote(step_begin + 4s) == 2);
  steps.begin(9, 16, step_begin);
  CHECK(steps.vote(step_begin + 1ms) == 16);
}
