// Machines, and how long each step of a load takes on them.
#include "safeshuffle/prediction.hpp"

#include <string>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/probe.hpp"

#include "support/catalogs.hpp"
#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/placement.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

// Nodes with 4 GPUs and 4 cores: storage 2 GB/s for a rank and 4 for a node, page cache 8 and 16,
// PCIe 10, packing 100, exchange 20, network of a node 10 GB/s; waves take nothing.
MachineModel gpu_machine() {
  MachineModel machine;
  machine.name = "gpus";
  machine.device = DeviceKind::cuda;
  machine.ranks_per_node = 4;
  machine.cores = 4;
  machine.costs = {.read_cold_direct_rank = 2e9,
                   .read_cold_direct_node = 4e9,
                   .read_warm_rank = 8e9,
                   .read_warm_node = 16e9,
                   .pack = 100e9,
                   .pack_convert = 50e9,
                   .host_to_device = 10e9,
                   .exchange = 20e9,
                   .wave_seconds = 1e-12};
  machine.network_node = 10e9;
  return machine;
}

// A node with 2 cores, measured with 2 ranks: storage 2 GB/s for a rank and 4 for the node, page
// cache 4 and 6, packing 3, converting 2, exchange 3, first touch 6 GB/s for each rank.
MachineModel host_machine() {
  MachineModel machine;
  machine.name = "host";
  machine.ranks_per_node = 2;
  machine.cores = 2;
  machine.costs = {.read_cold_direct_rank = 2e9,
                   .read_cold_direct_node = 4e9,
                   .read_warm_rank = 4e9,
                   .read_warm_node = 6e9,
                   .first_touch = 6e9,
                   .pack = 3e9,
                   .pack_convert = 2e9,
                   .exchange = 3e9,
                   .wave_seconds = 1e-12};
  return machine;
}

constexpr std::uint64_t mb = 1'000'000;

// A file of 1000 MB for each of `files`, split along dim 0; in four waves.
StepSeconds predicted(std::size_t files, std::uint32_t world, const Site& site,
                      DTypePolicy dtype = DTypePolicy::keep) {
  std::vector<std::vector<Made>> contents;
  for (std::size_t i = 0; i < files; ++i) {
    contents.push_back({{numbered("t", i), DType::F32, {1000, mb / 4}}});
  }
  PlanOptions options;
  options.assignment = Assignment::round_robin;
  options.dtype = dtype;
  options.window = 260 * mb;
  options.site = site;
  const std::vector<Placement> placements(files, cut(0, 1000));
  return predict(make_plan(make_catalog(contents), placements, world, options), site);
}

void check(double seconds, double expected) {
  CHECK_THAT(seconds, Catch::Matchers::WithinRel(expected, 1e-3));
}

std::string number(const std::string& value, const std::string& source = "here") {
  return R"({"value": )" + value + R"(, "source": ")" + source + "\"}";
}

const std::vector<std::string> all_costs{"read_cold_direct_rank", "read_cold_direct_node",
                                         "read_warm_rank",        "read_warm_node",
                                         "first_touch",           "pack",
                                         "pack_convert",          "exchange",
                                         "wave_seconds"};

std::string costs_json(const std::vector<std::string>& names, const std::string& one = "1e9") {
  std::string json;
  for (const std::string& name : names) {
    json += (json.empty() ? "" : ", ") + ("\"" + name + "\": ") + number(one);
  }
  return "{" + json + "}";
}

std::string machine_json(const std::string& costs, const std::string& device = R"("host")",
                         const std::string& ranks = number("2"), const std::string& more = "") {
  return "{\n\"description\": \"d\", \"device\": " + device + ",\n\"ranks_per_node\": " + ranks +
         ", \"cores\": " + number("4") + ",\n\"costs\": " + costs + more + "}";
}

std::vector<std::string> without(const std::string& name) {
  std::vector<std::string> names = all_costs;
  std::erase(names, name);
  return names;
}

}  // namespace

TEST_CASE("each step takes its bytes by its rate, and the longest decides", "[prediction]") {
  const StepSeconds alone = predicted(1, 1, site_on(gpu_machine(), 1, 1, 0));
  check(alone.read, 0.5);
  check(alone.host_to_device, 0.1);
  check(alone.pack, 0.01);
  CHECK(alone.exchange == 0);
  check(alone.total, 0.5);
  // The disk is shared: 4 GB at 4 GB/s. Each of 4 ranks sends three quarters of 1 GB.
  const StepSeconds shared = predicted(4, 4, site_on(gpu_machine(), 4, 1, 0));
  check(shared.read, 1);
  check(shared.exchange, 0.0375);
  check(shared.total, 1);
  const StepSeconds warm = predicted(4, 4, site_on(gpu_machine(), 4, 1, 1));
  check(warm.read, 0.25);
  check(warm.total, 0.25);
}

TEST_CASE("what waves take besides moving data goes on beside storage", "[prediction]") {
  const auto total = [](MachineModel machine, double wave_seconds) {
    machine.costs.wave_seconds = wave_seconds;
    return predicted(2, 2, site_on(machine, 2, 1, 0)).total;
  };
  // Of 4 waves. Storage takes 0.5 s; copying on GPUs 0.1 s, all other steps on the host 2/3 s.
  check(total(gpu_machine(), 0.01), 0.5);
  check(total(gpu_machine(), 1), 4.1);
  check(total(host_machine(), 0.01), 2.0 / 3 + 0.04);
}

TEST_CASE("storage and the page cache are read at the same time", "[prediction]") {
  // Of 1 GB, a quarter from the page cache at 8 GB/s, the rest from storage at 2.
  check(predicted(1, 1, site_on(gpu_machine(), 1, 1, 0.25)).read, 0.375);
}

TEST_CASE("a server takes the time of a request more, and of each for small slices",
          "[prediction]") {
  MachineModel machine = gpu_machine();
  machine.costs.request_seconds = 0.1;
  check(predicted(1, 1, site_on(machine, 1, 1, 0)).read, 0.6);
  check(predicted(1, 1, site_on(machine, 1, 1, 1)).read, 0.125);
  PlanOptions options;
  options.assignment = Assignment::sliced;
  options.site = site_on(machine, 2, 1, 0);
  std::vector<Made> tensors;
  for (std::size_t i = 0; i < 32; ++i) tensors.push_back({numbered("t", i), DType::U8, {2, mb}});
  const std::vector<Placement> placements(tensors.size(), cut(0, 2));
  const Plan plan = make_plan(make_catalog({tensors}), placements, 2, options);
  check(predict(plan, options.site).read, 0.3);  // 32 requests, 16 at a time
  options.site.cached_share = 0.5;
  check(predict(plan, options.site).read, 0.2);
}

TEST_CASE("on the host, the steps of a rank follow one another", "[prediction]") {
  // 1 GB each: packed 1/3 s, half sent 1/6 s, 1 GB touched 1/6 s; the disk takes 1/2 s beside it.
  const StepSeconds cold = predicted(2, 2, site_on(host_machine(), 2, 1, 0));
  check(cold.read, 0.5);
  check(cold.pack, 1.0 / 3);
  check(cold.exchange, 1.0 / 6);
  check(cold.allocate, 1.0 / 6);
  check(cold.total, 2.0 / 3);
  const StepSeconds converted = predicted(2, 2, site_on(host_machine(), 2, 1, 0), DTypePolicy::f16);
  check(converted.pack, 0.5);
  check(converted.exchange, 1.0 / 12);
}

TEST_CASE("a rank that reads most of what is cached is not slowed down by idle ones",
          "[prediction]") {
  const Site site = site_on(host_machine(), 2, 1, 1);
  const auto read = [&](std::uint64_t second) {
    const Catalog catalog =
        make_catalog({{{"t0", DType::U8, {1000, mb}}}, {{"t1", DType::U8, {second, mb}}}});
    PlanOptions options;
    options.assignment = Assignment::round_robin;
    const Plan plan = make_plan(catalog, {cut(0, 1000), cut(0, second)}, 2, options);
    return predict(plan, site).read;
  };
  check(read(2), 0.25);        // by one rank, at 4 GB/s
  check(read(1000), 2.0 / 6);  // by both, at 6 GB/s
}

TEST_CASE("rows that lie apart in the page cache take longer than their bytes", "[prediction]") {
  const Site site = site_on(host_machine(), 2, 1, 1);
  const auto read = [&](std::uint64_t rows, std::uint64_t columns, Assignment assignment) {
    PlanOptions options;
    options.assignment = assignment;
    const Plan plan = make_plan(make_catalog({{{"t", DType::U8, {rows, columns}}}}),
                                {cut(1, columns)}, 2, options);
    return predict(plan, site).read;
  };
  // 1 GB: half for each rank and, of rows that are read jointly, half of all for each rank beside
  // it; by both ranks at 6 GB/s, or by one at 4.
  check(read(160'000, 6250, Assignment::sliced), 2.0 / 6);
  check(read(160'000, 6250, Assignment::round_robin), 2.0 / 4);
  // As much as 3584 bytes for each row of each rank that is read by itself.
  check(read(10'000, 100'000, Assignment::sliced), (1 + 2 * 0.03584) / 6);
}

TEST_CASE("ranks share the cores of their node", "[prediction]") {
  const auto pack = [](std::uint32_t world) {
    return site_on(host_machine(), world, 1, 0).costs.pack;
  };
  check(pack(1), 6e9);  // both cores
  check(pack(2), 3e9);
  check(pack(8), 0.75e9);
  MachineModel large = host_machine();
  large.cores = 16;  // the two ranks have used 4 each
  CHECK(site_on(large, 1, 1, 0).costs.pack == 3e9);
  CHECK(site_on(large, 4, 1, 0).costs.pack == 3e9);
  CHECK(site_on(large, 8, 1, 0).costs.pack == 1.5e9);
}

TEST_CASE("GPUs may share the path from the host", "[prediction]") {
  MachineModel machine = gpu_machine();
  machine.host_to_device_node = 24e9;
  CHECK(site_on(machine, 2, 1, 0).costs.host_to_device == 10e9);
  CHECK(site_on(machine, 4, 1, 0).costs.host_to_device == 6e9);
}

TEST_CASE("ranks share the network of their node", "[prediction]") {
  const Site site = site_on(gpu_machine(), 8, 0, 0);
  CHECK(site.nodes == 2);
  // 4 of the 7 others are on the other node; a rank gets a quarter of 10 GB/s for that.
  check(site.costs.exchange, 2.5e9 * 7 / 4);
}

TEST_CASE("there must be enough nodes, with a network between them", "[prediction]") {
  const auto cause = [](const MachineModel& machine, std::uint32_t world, std::uint32_t nodes) {
    return failure<ConfigError>([&] { site_on(machine, world, nodes, 0); }).cause;
  };
  CHECK(cause(gpu_machine(), 5, 1) ==
        "5 ranks on 1 node, but the machine gpus has 4 GPUs per node");
  CHECK(cause(gpu_machine(), 2, 3) == "2 ranks cannot be on 3 nodes");
  CHECK(cause(host_machine(), 2, 2) ==
        "the machine host has no \"network_node\", which several nodes need");
}

TEST_CASE("a machine comes from JSON with the source of each number", "[prediction]") {
  const MachineModel machine =
      machine_from_json(machine_json(costs_json(all_costs), R"("host")", number("2", "probe"),
                                     R"(, "network_node": )" + number("5e9")),
                        "m");
  CHECK(machine.name == "m");
  CHECK(machine.device == DeviceKind::host);
  CHECK(machine.ranks_per_node == 2);
  CHECK(machine.cores == 4);
  CHECK(machine.costs.pack == 1e9);
  CHECK(machine.network_node == 5e9);
  CHECK(machine.assumptions.size() == 3 + all_costs.size());
  CHECK(machine.assumptions.front().name == "ranks_per_node");
  CHECK(machine.assumptions.front().source == "probe");
}

TEST_CASE("malformed machines are errors that name the place", "[prediction]") {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"{", "the JSON text ends early"},
      {"[]", "not a JSON object"},
      {"{}", R"("description": missing)"},
      {machine_json(costs_json(all_costs), R"("gpu")"), R"("device": neither "host" nor "cuda")"},
      {machine_json(costs_json(all_costs), R"("cuda")"), R"("costs.host_to_device": missing)"},
      {machine_json(costs_json(without("first_touch"))), R"("costs.first_touch": missing)"},
      {machine_json(costs_json(without("pack"))), R"("costs.pack": missing)"},
      {machine_json(costs_json({"packs"})), R"("costs.packs": unknown field)"},
      {machine_json(costs_json(all_costs), R"("host")", number("2"), R"(, "gpus": 8)"),
       R"("gpus": unknown field)"},
      {machine_json(costs_json(all_costs), R"("host")", number("1.5")),
       R"("ranks_per_node": not an integer from 1 to 65536)"},
      {machine_json(costs_json(all_costs, "0")), R"(.value": not a positive number)"},
      {machine_json(costs_json(all_costs, "-1")), R"(.value": not a positive number)"},
      {machine_json(costs_json(all_costs, "\"1\"")), R"(.value": not a positive number)"},
      {machine_json(costs_json(all_costs), R"("host")", R"({"value": 2})"),
       R"("ranks_per_node.source": missing)"},
      {machine_json(costs_json(all_costs), R"("host")", number("2", "")),
       R"("ranks_per_node.source": empty)"},
      {machine_json(costs_json(all_costs), R"("host")", "2"),
       R"("ranks_per_node": not a JSON object)"},
      {machine_json(costs_json(all_costs), R"("host")",
                    R"({"value": 2, "source": "x", "unit": "GB"})"),
       R"("ranks_per_node.unit": unknown field)"}};
  for (const auto& [text, cause] : cases) {
    INFO(text);
    const ErrorRecord record =
        failure<ConfigError>([&, &text = text] { machine_from_json(text, "m.json"); });
    CHECK(record.file == "m.json");
    INFO(record.cause);
    CHECK(record.cause.find(cause) != std::string::npos);
  }
}

TEST_CASE("the machines of the library are valid, and faster with newer GPUs", "[prediction]") {
  const std::vector<MachineModel> machines = built_in_machines();
  std::vector<std::string> names;
  for (const MachineModel& machine : machines) names.push_back(machine.name);
  CHECK(names == std::vector<std::string>{"8xa100", "8xh100", "8xh200", "vm-2-cores"});
  CHECK(machines[0].costs.host_to_device < machines[1].costs.host_to_device);
  CHECK(machines[1].costs.pack < machines[2].costs.pack);
}

TEST_CASE("a probe is a machine; what it has not measured has defaults", "[prediction]") {
  const std::string text =
      R"({"schema_version": 2, "date": "2026-11-22T00:00:00Z", "machine": {"cores": 2},)"
      R"( "place": {"host": "h", "filesystem": "ext4", "filesystem_device": "/dev/x",)"
      R"( "device": "host", "ranks_per_node": 2, "nodes": 1}, "costs": {"pack": 5e9}})";
  const MachineModel machine = machine_from_probe(text, "p.json");
  CHECK(machine.cores == 2);
  CHECK(machine.ranks_per_node == 2);
  CHECK(machine.costs.pack == 5e9);
  CHECK(machine.costs.exchange == default_costs(DeviceKind::host).exchange);
  for (const Assumption& each : machine.assumptions) {
    CHECK((each.source == "default, not measured") == (each.name != "costs.pack"));
  }
}
