// Simulated loads, by hand and by what must hold for all of them.
#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/prediction.hpp"

#include "simulation/node.hpp"
#include "support/catalogs.hpp"
#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/machines.hpp"
#include "support/placement.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

constexpr std::uint64_t mb = 1'000'000;

// Of the last chunk of a wave, at 10 GB/s.
constexpr double last_copy = 2097152 / 10e9;

PlanOptions options_for(const Cluster& cluster, Assignment assignment = Assignment::round_robin) {
  PlanOptions options;
  options.assignment = assignment;
  options.window = 1000 * mb;
  options.site = site_of(cluster);
  return options;
}

// Files of 1000 MB, each a wave of its reader, split along dim 0.
Plan planned(std::size_t files, const Cluster& cluster, const PlanOptions& options) {
  std::vector<std::vector<Made>> contents;
  for (std::size_t i = 0; i < files; ++i) {
    contents.push_back({{numbered("t", i), DType::F32, {1000, mb / 4}}});
  }
  return make_plan(make_catalog(contents), std::vector<Placement>(files, cut(0, 1000)),
                   cluster.world, options);
}

Simulation simulated(std::size_t files, const Cluster& cluster) {
  return simulate(planned(files, cluster, options_for(cluster)), cluster, true);
}

Cluster on(const MachineModel& machine, std::uint32_t world, double cached_share = 0) {
  return make_cluster(machine, world, 1, cached_share);
}

void check(double seconds, double expected) {
  CHECK_THAT(seconds, Catch::Matchers::WithinRel(expected, 1e-6));
}

SimulatedSpan span_of(const Simulation& simulation, Step step, std::uint32_t rank,
                      std::uint32_t wave) {
  for (const SimulatedSpan& span : simulation.spans) {
    if (span.step == step && span.rank == rank && span.wave == wave) return span;
  }
  FAIL("no such span");
  return {};
}

simulation::Work work(double alone, double storage, double host) {
  return {alone, {storage, host}};
}

}  // namespace

TEST_CASE("a single rank is as fast as its disk, and packs its last wave at the end",
          "[simulation]") {
  const Simulation load = simulated(4, on(gpu_machine(), 1));
  check(load.seconds, 40e-6 * 4 + 4 * (0.5 + last_copy) + 0.01);
  check(load.first_tensor_seconds, 40e-6 * 4 + 0.5 + last_copy + 0.01);
  check(load.use.storage, 1.0 / load.seconds);  // 4 GB of a node that reads 4 GB/s
  CHECK(load.use.network_out == 0);
  const SimulatedRank& rank = load.ranks.front();
  check(rank.read_busy, 2);
  check(rank.read, 2 - 3 * 0.01);  // it packs three waves meanwhile
  check(rank.host_to_device, 4 * last_copy);
  check(rank.pack, 0.04);
  check(rank.open + rank.read + rank.host_to_device + rank.pack + rank.exchange, load.seconds);
}

TEST_CASE("ranks share a disk, and one that is left alone gets all of it", "[simulation]") {
  MachineModel machine = gpu_machine();
  machine.costs.read_cold_direct_node = 2e9;
  const Simulation load = simulated(3, on(machine, 2));
  // Two files at 1 GB/s each, then the third at 2 GB/s.
  check(span_of(load, Step::read, 0, 0).end - span_of(load, Step::read, 0, 0).begin, 1);
  check(span_of(load, Step::read, 1, 0).end, span_of(load, Step::read, 0, 0).end);
  check(span_of(load, Step::read, 0, 1).end - span_of(load, Step::read, 0, 1).begin, 0.5);
  check(load.use.storage * load.seconds, 1.5);
}

TEST_CASE("GPUs share the path from the host, if the node has a limit for all", "[simulation]") {
  MachineModel machine = gpu_machine();
  const auto first_read = [&](std::uint32_t world) {
    const Simulation load = simulated(2, on(machine, world, 1));
    const SimulatedSpan span = span_of(load, Step::read, 0, 0);
    return span.end - span.begin;
  };
  check(first_read(2), 0.125);  // from the page cache, 8 GB/s each
  machine.host_to_device_node = 8e9;
  check(first_read(2), 0.25);
  check(first_read(1), 0.125);
}

TEST_CASE("what cannot be hidden behind an exchange adds to it", "[simulation]") {
  MachineModel machine = gpu_machine();
  machine.costs.exchange = 0.5e9;
  const Simulation load = simulated(4, on(machine, 2, 1));
  // Each sends half of 1 GB in each of two waves; only the first read is waited for.
  check(load.seconds, 40e-6 * 2 + 0.125 + last_copy + 2 * (0.01 + 1));
  check(load.ranks[1].exchange, 2);
}

TEST_CASE("reads are three slabs ahead, and no more", "[simulation]") {
  MachineModel machine = gpu_machine();
  machine.costs.exchange = 0.5e9;
  const Simulation load = simulated(12, on(machine, 2, 1));
  for (const std::uint32_t rank : {0U, 1U}) {
    for (std::uint32_t wave = 3; wave < 6; ++wave) {
      check(span_of(load, Step::read, rank, wave).begin,
            span_of(load, Step::exchange, rank, wave - 3).end);
    }
  }
}

TEST_CASE("the slowest rank holds up the exchange of all", "[simulation]") {
  const Cluster cluster = on(gpu_machine(), 2);
  PlanOptions options = options_for(cluster);
  std::vector<std::vector<Made>> files{{{"large", DType::U8, {1000, mb}}},
                                       {{"small", DType::U8, {100, mb}}}};
  const Plan plan =
      make_plan(make_catalog(files), {cut(0, 1000), cut(0, 100)}, cluster.world, options);
  const Simulation load = simulate(plan, cluster, true);
  check(span_of(load, Step::read, 1, 0).end, 40e-6 + 0.05);
  check(span_of(load, Step::exchange, 0, 0).begin, span_of(load, Step::exchange, 1, 0).begin);
  check(load.ranks[1].exchange, load.seconds - 40e-6 - 0.05 - last_copy - 0.001);
}

TEST_CASE("ranks that read slices wait for each other at every sixteenth wave and the last",
          "[simulation]") {
  const Cluster cluster = on(gpu_machine(), 2);
  const PlanOptions options = options_for(cluster, Assignment::sliced);
  // Rank 0 reads 900 MB of each file, rank 1 100 MB.
  std::vector<std::vector<Made>> files;
  std::vector<Placement> placements;
  for (std::size_t i = 0; i < 20; ++i) {
    files.push_back(
        {{numbered("cut", i), DType::U8, {200, mb}}, {numbered("own", i), DType::U8, {800, mb}}});
    placements.push_back(cut(0, 200));
    placements.push_back(whole(Placement::Kind::single, 0));
  }
  const Plan plan = make_plan(make_catalog(files), placements, cluster.world, options);
  REQUIRE(plan.waves() == 20);
  const Simulation load = simulate(plan, cluster, true);
  std::set<std::uint32_t> exchanged;
  for (const SimulatedSpan& span : load.spans) {
    if (span.step == Step::exchange) exchanged.insert(span.wave);
  }
  CHECK(exchanged == std::set<std::uint32_t>{15, 19});
  CHECK(span_of(load, Step::pack, 1, 15).end < span_of(load, Step::pack, 0, 3).end);
  CHECK(span_of(load, Step::read, 1, 17).end < span_of(load, Step::read, 0, 4).end);
  check(span_of(load, Step::read, 1, 18).begin, span_of(load, Step::exchange, 0, 15).end);
}

TEST_CASE("on the host, what is cached is packed as it is read, and memory is touched",
          "[simulation]") {
  // 2 GB at 4 GB/s, and into new memory at 12 GB/s for both cores.
  const Simulation warm = simulated(2, on(host_machine(), 1, 1));
  check(warm.seconds, 40e-6 * 2 + 0.5 + 2.0 / 12);
  CHECK(warm.ranks.front().read_busy == 0);
  // The first reads touch slabs, at the speed of both cores: 1 GB in 1/2 + 1/12 s, and 1/6 + 1/12 s
  // to pack it; while it does, the next read has no core for its share of that.
  const Simulation cold = simulated(1, on(host_machine(), 1));
  check(cold.seconds, 40e-6 + 0.5 + 1.0 / 12 + 1.0 / 6 + 1.0 / 12);
}

TEST_CASE("packing rows that lie apart in the page cache takes longer", "[simulation]") {
  const Cluster cluster = on(host_machine(), 2, 1);
  const auto seconds = [&](std::uint64_t rows, std::uint64_t columns, Assignment assignment) {
    const Plan plan = make_plan(make_catalog({{{"t", DType::U8, {rows, columns}}}}),
                                {cut(1, columns)}, 2, options_for(cluster, assignment));
    return simulate(plan, cluster).seconds;
  };
  // 0.5 GB for each rank, touched at 6 GB/s and read at 3 GB/s; with as much beside it of rows that
  // are read jointly, and 3584 bytes for each row that is read by itself.
  check(seconds(160'000, 6250, Assignment::sliced), 40e-6 + 1.0 / 3 + 0.5 / 6);
  check(seconds(10'000, 100'000, Assignment::sliced), 40e-6 + 0.53584 / 3 + 0.5 / 6);
  // One rank reads for both, at 4 GB/s, and touches what it keeps and what it sends at 12; the
  // other one receives 0.5 GB at 3 GB/s and touches it at 12.
  check(seconds(160'000, 6250, Assignment::round_robin),
        40e-6 + 2.0 / 4 + 1.0 / 12 + 0.5 / 3 + 0.5 / 12);
}

TEST_CASE("ranks that share a core open their files in turns", "[simulation]") {
  check(simulated(8, on(host_machine(), 2)).ranks.front().open, 4 * 40e-6);
  check(simulated(8, on(host_machine(), 4)).ranks.front().open, 2 * 40e-6 * 2);
  check(simulated(8, on(host_machine(), 1)).ranks.front().open, 8 * 40e-6);
}

TEST_CASE("nodes exchange by their networks", "[simulation]") {
  const Cluster cluster = make_cluster(gpu_machine(1), 2, 0, 0);
  const Simulation load = simulated(2, cluster);
  const SimulatedSpan exchange = span_of(load, Step::exchange, 0, 0);
  check(exchange.end - exchange.begin, 0.05);  // 0.5 GB at 10 GB/s
  check(load.use.network_in, load.use.network_out);
  const Simulation together = simulated(2, on(gpu_machine(), 2));
  check(span_of(together, Step::exchange, 0, 0).end - span_of(together, Step::exchange, 0, 0).begin,
        0.025);
}

TEST_CASE("replicas relay what one of them has read", "[simulation]") {
  const Cluster cluster = make_cluster(gpu_machine(2), 4, 0, 0);
  PlanOptions options = options_for(cluster);
  options.replicas = 2;
  const Plan plan = planned(1, cluster, options);
  const Simulation load = simulate(plan, cluster, true);
  // Rank 0 sends half to rank 1; each sends its half to its twin on the other node.
  const SimulatedSpan relay = span_of(load, Step::relay, 1, 0);
  check(relay.end - relay.begin, 1.0 / 10);
  CHECK(load.ranks[0].sent_bytes == 1000 * mb);
  CHECK(load.ranks[1].sent_bytes == 500 * mb);
  CHECK(load.ranks[2].received_bytes == 500 * mb);
}

TEST_CASE("activities slow each other down fairly", "[simulation]") {
  simulation::Node node;
  // Two that could each use three quarters of the storage, one that needs no storage.
  node.start({Step::read, 0, 0}, work(1, 0.75, 0), 0);
  node.start({Step::read, 1, 0}, work(1, 0.75, 0), 0);
  node.start({Step::pack, 2, 0}, work(1.2, 0, 1.2), 0);
  check(node.next(), 1.2);
  REQUIRE(node.finish(1.2).size() == 1);
  check(node.next(), 1.5);
  CHECK(node.finish(1.5).size() == 2);
  check(node.busy()[0], 1.5);
  check(node.busy()[1], 1.2);
}

TEST_CASE("what one cannot use because of its cores, another gets", "[simulation]") {
  simulation::Node node;
  // Three want all cores, so each of them works at a third of its speed. Of the storage, rank 1
  // then takes a quarter, and leaves three quarters, all that rank 0 wants.
  node.start({Step::read, 0, 0}, work(1, 0.75, 0), 0);
  node.start({Step::read, 1, 0}, work(1, 0.75, 1), 0);
  node.start({Step::pack, 2, 0}, work(1, 0, 1), 0);
  node.start({Step::pack, 3, 0}, work(1, 0, 1), 0);
  check(node.next(), 1);
  const std::vector<SimulatedSpan> finished = node.finish(1);
  REQUIRE(finished.size() == 1);
  CHECK(finished.front().rank == 0);
  check(node.next(), 3);
}

TEST_CASE("bytes are those of the plan", "[simulation]") {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const RandomModel model = random_model(seed);
    const std::uint32_t replicas = 1 + seed % 2;
    const std::uint32_t world = replicas * (1 + seed % 4);
    const Cluster cluster = make_cluster(gpu_machine(2), world, 0, 0);
    PlanOptions options = options_for(cluster, Assignment(seed % 5));
    options.replicas = replicas;
    options.window = seed % 3 == 0 ? 4096 : 1000 * mb;
    options.dtype = seed % 7 == 0 ? DTypePolicy::f32 : DTypePolicy::keep;
    const Plan plan = make_plan(model.catalog, model.placements, world, options);
    const Simulation load = simulate(plan, cluster);
    INFO("seed " << seed);
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      const RankSummary& planned = plan.ranks()[rank];
      if (planned.sliced_bytes == 0) CHECK(load.ranks[rank].read_bytes == planned.read_bytes);
      CHECK(load.ranks[rank].read_bytes <= planned.read_bytes);
      CHECK(load.ranks[rank].sent_bytes == planned.sent_bytes);
      CHECK(load.ranks[rank].received_bytes == planned.received_bytes);
    }
  }
}

TEST_CASE("a faster machine is never slower", "[simulation]") {
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    MachineModel machine = seed % 2 == 0 ? gpu_machine(4) : host_machine();
    machine.network_node = 10e9;
    const auto seconds = [&](const MachineModel& faster) {
      return simulated(5 + seed, make_cluster(faster, 4, 1 + seed % 3, 0.25 * (seed % 5))).seconds;
    };
    const double before = seconds(machine);
    for (double Costs::*cost : {&Costs::read_cold_direct_rank, &Costs::read_cold_direct_node,
                                &Costs::read_warm_rank, &Costs::read_warm_node, &Costs::first_touch,
                                &Costs::pack, &Costs::host_to_device, &Costs::exchange}) {
      MachineModel faster = machine;
      faster.costs.*cost *= 2;
      CHECK(seconds(faster) <= before * (1 + 1e-9));
    }
  }
}

TEST_CASE("a thousand ranks with replicas are simulated in seconds", "[simulation]") {
  std::vector<std::vector<Made>> files(64);
  std::vector<Placement> placements;
  for (std::size_t i = 0; i < 2048; ++i) {
    files[i % 64].push_back({numbered("t", i), DType::BF16, {8192, 4096}});
    placements.push_back(i % 8 == 0 ? whole() : cut(i % 2 == 0 ? 1 : 0, i % 2 == 0 ? 4096 : 8192));
  }
  const Cluster cluster = make_cluster(gpu_machine(8), 1024, 0, 0);
  PlanOptions options = options_for(cluster, Assignment::striped);
  options.replicas = 16;
  options.window = 256 * mb;
  const Plan plan = make_plan(make_catalog(files), placements, cluster.world, options);
  const auto begin = std::chrono::steady_clock::now();
  const Simulation load = simulate(plan, cluster);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  CHECK(load.seconds > 0);
  CHECK(seconds.count() < 20);  // a tenth of a second without sanitizers
}

TEST_CASE("a plan for another group is a ConfigError", "[simulation]") {
  const Plan plan = planned(1, on(gpu_machine(), 1), options_for(on(gpu_machine(), 1)));
  CHECK(failure<ConfigError>([&] { simulate(plan, on(gpu_machine(), 2)); }).cause ==
        "the plan is for 1 rank, not 2");
}
