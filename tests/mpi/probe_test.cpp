// Probes of several ranks: what they measure, and that all end together.
#include "safeshuffle/probe.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/machine.hpp"
#include "probe/turns.hpp"
#include "support/catch.hpp"
#include "support/group.hpp"
#include "support/shared_model.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;
using probing::Run;
using probing::Trials;
using namespace std::chrono_literals;

namespace {

using Of = Measurement::Of;

struct Counted {
  std::string prepare() const { return is_last_rank() ? obstacle : ""; }
  Run run() {
    ++runs;
    if (throws && is_last_rank()) throw IoError("broken disk");
    Run run;
    run.bytes = 100;
    run.begin += world_rank() * delay;
    run.end = run.begin + (1 + world_rank()) * 1s;
    return run;
  }

  int runs = 0;
  std::chrono::seconds delay{0};  // between the beginnings of ranks
  bool throws = false;
  std::string obstacle;  // of the last rank
};

std::vector<Measurement> take(const Trials& trials, const ProbeOptions& options = {}) {
  const auto control = make_world_control();
  return probing::take_turns(*control, 1, trials, {2, 1e9}, options);
}

std::pair<Trials, std::shared_ptr<Counted>> one_trial(Of of) {
  const auto counted = std::make_shared<Counted>();
  Trials trials{{.name = "a",
                 .of = of,
                 .prepare = [counted] { return counted->prepare(); },
                 .run = [counted] { return counted->run(); }}};
  return {std::move(trials), counted};
}

const Measurement* find(const Probe& probe, const std::string& name, Of of) {
  const auto found = std::ranges::find_if(probe.measurements, [&](const Measurement& each) {
    return each.name == name && each.of == of;
  });
  return found == probe.measurements.end() ? nullptr : &*found;
}

ProbeOptions quick() {
  ProbeOptions options;
  options.quick = true;
  return options;
}

}  // namespace

TEST_CASE("the slowest rank ends a run of all", "[probe]") {
  auto [trials, trial] = one_trial(Of::each_rank);
  const Measurement result = take(trials).front();
  CHECK(trial->runs == 2);
  CHECK(result.bytes == 100 * world_size());
  CHECK(result.result->median == Approx(100.0 / world_size()));
}

TEST_CASE("a run of ranks that take turns lasts until the last one has ended", "[probe]") {
  auto [trials, trial] = one_trial(Of::node);
  trial->delay = 10s;
  const double seconds = 10 * (world_size() - 1) + world_size();
  CHECK(take(trials).front().result->median == Approx(100 * world_size() / seconds));
}

TEST_CASE("one rank works while the others wait", "[probe]") {
  auto [trials, trial] = one_trial(Of::one_rank);
  const Measurement result = take(trials).front();
  CHECK(trial->runs == (world_rank() == 0 ? 2 : 0));
  CHECK(result.result->median == Approx(100));
}

TEST_CASE("a node reads what its ranks read together", "[probe]") {
  auto [trials, trial] = one_trial(Of::node);
  CHECK(take(trials).front().result->median == Approx(100));
}

TEST_CASE("an obstacle on one rank ends the trial on all", "[probe]") {
  auto [trials, trial] = one_trial(Of::each_rank);
  trial->obstacle = "tmpfs";
  const Measurement result = take(trials).front();
  CHECK(trial->runs == 0);
  CHECK_FALSE(result.result);
  CHECK(result.obstacle == "tmpfs");
}

TEST_CASE("what one rank throws in a probe, all throw", "[probe]") {
  auto [trials, trial] = one_trial(Of::each_rank);
  trial->throws = true;
  const auto error = common_error([&trials = trials] { take(trials); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::io);
  CHECK(error->rank == static_cast<std::int32_t>(world_size() - 1));
}

TEST_CASE("a probe measures what this group has, the same on all ranks", "[load][probe]") {
  if (world_size() > 2) return;  // takes seconds, and shows no more than on 2
  const SharedModel model(plain_model(3));
  const Communicator comm = shared_group();
  const Probe result = probe({model.path()}, comm, quick());
  CHECK(same_on_all(to_json(result)));
  CHECK(result.place.ranks_per_node * result.place.nodes == world_size());
  const bool several = world_size() > 1;
  const bool on_gpus = comm.device() == DeviceKind::cuda;
  CHECK((find(result, "read_warm", Of::node) != nullptr) == several);
  CHECK((find(result, "read_warm_fresh", Of::one_rank) != nullptr) == !on_gpus);
  CHECK((find(result, "exchange", Of::each_rank) != nullptr) == several);
  CHECK((find(result, "host_to_device", Of::each_rank) != nullptr) == on_gpus);
  for (const char* name : {"pack", "pack_convert", "wave"}) {
    CAPTURE(name);
    const Measurement* each = find(result, name, Of::each_rank);
    REQUIRE(each);
    CHECK(each->result);
    CHECK(each->obstacle == "");
  }
  for (const Measurement& each : result.measurements) {
    CAPTURE(each.name);
    CHECK(each.result.has_value() == each.obstacle.empty());
    if (each.result) CHECK(each.result->least > 0);
  }
  const Costs costs = costs_from_probe(to_json(result));
  CHECK(costs.pack > 0);
  CHECK((costs.exchange > 0) == several);
}

TEST_CASE("the place of a load is that of rank 0", "[probe]") {
  const ProbePlace place =
      place_of(shared_group(), is_last_rank() ? "/proc/self" : "/nothing/here");
  CHECK(same_on_all(place.filesystem + place.host));
  CHECK((place.filesystem == "proc") == (world_size() == 1));
  CHECK(place.cpu == core::cpu_model());
  CHECK(place.cpus == core::online_cpus());
  CHECK(place.ranks_per_node * place.nodes == world_size());
}

TEST_CASE("ranks with different options of a probe all learn it", "[probe]") {
  if (world_size() == 1) return;
  const SharedModel model(plain_model(1));
  ProbeOptions options = quick();
  options.quick = !is_last_rank();
  const auto error = common_error([&] { probe({model.path()}, shared_group(), options); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::config);
  options = quick();
  if (is_last_rank()) options.timeout = std::chrono::seconds(1);
  const auto too_short = common_error([&] { probe({model.path()}, shared_group(), options); });
  REQUIRE(too_short);
  CHECK(too_short->kind == ErrorKind::config);
}

TEST_CASE("a probe of files that do not exist fails on all ranks", "[probe]") {
  const auto error = common_error([&] { probe({"/nonexistent"}, shared_group(), quick()); });
  REQUIRE(error);
  CHECK(error->kind == ErrorKind::io);
}
