// probe/turns: runs in turns, obstacles, limits.
#include <chrono>
#include <string>
#include <vector>

#include "safeshuffle/error.hpp"

#include "probe/turns.hpp"
#include "support/catch.hpp"
#include "support/failure.hpp"

using namespace safeshuffle;
using namespace safeshuffle::probing;
using namespace std::chrono_literals;

namespace {

Run run_of(std::uint64_t bytes, std::chrono::milliseconds time) {
  Run run;
  run.bytes = bytes;
  run.end = run.begin + time;
  return run;
}

std::vector<Measurement> take(const Trials& trials, const Turns& turns,
                              const ProbeOptions& options = {}) {
  const auto control = comm::make_self_control();
  return take_turns(*control, 1, trials, turns, options);
}

constexpr double no_limit = 1e9;

}  // namespace

TEST_CASE("the middle of several runs, and the extremes", "[probe]") {
  const Spread odd = spread_of({3, 1, 10});
  CHECK(odd.median == 3);
  CHECK(odd.least == 1);
  CHECK(odd.most == 10);
  CHECK(odd.runs == 3);
  CHECK(spread_of({4, 1}).median == 2.5);
}

TEST_CASE("trials take turns, and each run counts", "[probe]") {
  std::string order;
  int runs = 0;
  const Trials trials{{.name = "a",
                       .run =
                           [&] {
                             order += 'a';
                             return run_of(100, ++runs * 1s);
                           }},
                      {.name = "b", .run = [&] {
                         order += 'b';
                         return run_of(50, 500ms);
                       }}};
  std::vector<double> shares;
  ProbeOptions options;
  options.on_progress = [&](double share) { shares.push_back(share); };
  const auto results = take(trials, {2, no_limit}, options);
  CHECK(order == "abab");
  REQUIRE(results.size() == 2);
  CHECK(results[0].name == "a");
  CHECK(results[0].result->most == 100);
  CHECK(results[0].result->least == 50);
  CHECK(results[0].result->median == 75);
  CHECK(results[0].bytes == 100);
  CHECK(results[1].result->median == 100);
  CHECK(std::is_sorted(shares.begin(), shares.end()));
  CHECK(shares.back() == 1);
}

TEST_CASE("a time is that of one of the things that a run does", "[probe]") {
  const Trials trials{{.name = "a", .is_time = true, .run = [] {
                         Run run = run_of(0, 8s);
                         run.times = 4;
                         return run;
                       }}};
  const auto result = take(trials, {1, no_limit});
  CHECK(result.front().is_time);
  CHECK(result.front().result->median == 2);
}

TEST_CASE("no round begins after the time is over, but the first does", "[probe]") {
  int runs = 0;
  const Trials trials{{.name = "a", .run = [&] {
                         ++runs;
                         return run_of(1, 1s);
                       }}};
  CHECK(take(trials, {5, -1}).front().result->runs == 1);
  CHECK(runs == 1);
}

TEST_CASE("a trial that cannot be prepared ends, the others do not", "[probe]") {
  const auto run = [] { return run_of(1, 1s); };
  const Trials trials{{.name = "a", .prepare = [] { return std::string("no way"); }, .run = run},
                      {.name = "b", .run = run}};
  const auto results = take(trials, {3, no_limit});
  CHECK_FALSE(results[0].result);
  CHECK(results[0].obstacle == "no way");
  CHECK(results[1].result->runs == 3);
  CHECK(results[1].obstacle.empty());
}

TEST_CASE("a run that turns out not to count ends its trial", "[probe]") {
  int runs = 0;
  const Trials trials{{.name = "a", .run = [&] {
                         Run run = run_of(1, 1s);
                         if (++runs == 2) run.obstacle = "fell back";
                         return run;
                       }}};
  const auto results = take(trials, {5, no_limit});
  CHECK_FALSE(results[0].result);
  CHECK(results[0].obstacle == "fell back");
  CHECK(runs == 2);
}

TEST_CASE("what a trial or the progress callback throws is thrown", "[probe]") {
  const Trials failing{{.name = "a", .run = []() -> Run { throw IoError("broken disk"); }}};
  CHECK(testing::failure<IoError>([&] { take(failing, {1, no_limit}); }).cause == "broken disk");
  const Trials trials{{.name = "a", .run = [] { return run_of(1, 1s); }}};
  ProbeOptions options;
  options.on_progress = [](double) { throw ConfigError("no"); };
  CHECK_THROWS_AS(take(trials, {1, no_limit}, options), ConfigError);
}
