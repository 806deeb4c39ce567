// Costs: parsing what a probe wrote, and defaults.
#include "safeshuffle/costs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/probe.hpp"

#include "support/catch.hpp"
#include "support/failure.hpp"

using namespace safeshuffle;
using testing::failure;

namespace {

const std::string place =
    R"("place": {"host": "h", "filesystem": "ext4", "filesystem_device": "/dev/x",)"
    R"( "device": "host", "ranks_per_node": 2, "nodes": 1})";

std::string probe_json(const std::string& costs, const std::string& version = "2") {
  return R"({"schema_version": )" + version + R"(, "date": "2026-11-22T00:00:00Z", )" + place +
         R"(, "costs": )" + costs + "}";
}

Measurement measured(const std::string& name, Measurement::Of of, double median) {
  Measurement measurement;
  measurement.name = name;
  measurement.of = of;
  measurement.result = Spread{median, median / 2, median * 2, 3};
  return measurement;
}

Probe sample_probe() {
  using Of = Measurement::Of;
  Probe probe;
  probe.version = "1";
  probe.date = "2026-11-22T00:00:00Z";
  probe.place = {"h", "ext4", "/dev/x", "EPYC", 8, "host", 2, 1};
  probe.measurements = {measured("read_cold_direct", Of::one_rank, 1e9),
                        measured("read_cold_direct", Of::node, 2e9),
                        measured("read_cold_buffered", Of::one_rank, 3e9),
                        measured("read_cold_buffered", Of::node, 4e9),
                        measured("read_warm", Of::one_rank, 5e9),
                        measured("read_warm", Of::node, 6e9),
                        measured("read_warm_fresh", Of::one_rank, 4e9),
                        measured("read_warm_fresh", Of::node, 2e9),
                        measured("pack", Of::each_rank, 7e9),
                        measured("pack_convert", Of::each_rank, 8e9),
                        measured("exchange", Of::each_rank, 9e9),
                        measured("request", Of::one_rank, 0.05),
                        measured("wave", Of::each_rank, 1e-4)};
  probe.measurements.back().is_time = true;
  return probe;
}

Measurement& find(Probe& probe, std::string_view name, Measurement::Of of) {
  const auto found = std::ranges::find_if(probe.measurements, [&](const Measurement& each) {
    return each.name == name && each.of == of;
  });
  REQUIRE(found != probe.measurements.end());
  return *found;
}

}  // namespace

TEST_CASE("what a probe measured comes back from its JSON as costs", "[costs]") {
  const Probe probe = sample_probe();
  const Costs costs = costs_from_probe(to_json(probe));
  CHECK(costs == costs_of(probe));
  CHECK(costs.read_cold_direct_rank == 1e9);
  CHECK(costs.read_cold_direct_node == 2e9);
  CHECK(costs.read_cold_buffered_rank == 3e9);
  CHECK(costs.read_cold_buffered_node == 4e9);
  CHECK(costs.read_warm_rank == 5e9);
  CHECK(costs.read_warm_node == 6e9);
  CHECK(std::abs(costs.first_touch - 1.5e9) < 1);
  CHECK(costs.pack == 7e9);
  CHECK(costs.pack_convert == 8e9);
  CHECK(costs.host_to_device == 0);
  CHECK(costs.exchange == 9e9);
  CHECK(costs.request_seconds == 0.05);
  CHECK(costs.wave_seconds == 1e-4);
}

TEST_CASE("a rank that is alone on its node reads as much as the node", "[costs]") {
  Probe probe = sample_probe();
  probe.place.ranks_per_node = 1;
  CHECK(costs_of(probe).read_warm_node == 5e9);
}

TEST_CASE("what could not be measured is not known", "[costs]") {
  Probe probe = sample_probe();
  for (Measurement& each : probe.measurements) {
    each.result.reset();
    each.obstacle = "no";
  }
  CHECK(costs_from_probe(to_json(probe)) == Costs{});
}

TEST_CASE("first touch takes what reading into new memory takes longer", "[costs]") {
  Probe probe = sample_probe();
  Measurement& fresh = find(probe, "read_warm_fresh", Measurement::Of::node);
  fresh.result->median = 20e9;  // faster than memory in use: no time that could be measured
  CHECK(std::abs(costs_of(probe).first_touch - 100 * 6e9 / 2) < 1);
  fresh.result.reset();
  CHECK(costs_of(probe).first_touch == 0);
}

TEST_CASE("costs of other versions' fields are ignored, absent ones not known", "[costs]") {
  const Costs costs = costs_from_probe(probe_json(R"({"pack": 5, "later": "x"})"));
  CHECK(costs == Costs{.pack = 5});
}

TEST_CASE("malformed probes are errors that name the place", "[costs]") {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "the JSON text ends early"},
      {"[]", "not a JSON object"},
      {"null", "not a JSON object"},
      {"{}", R"("schema_version": missing)"},
      {probe_json("{}", "3"), R"("schema_version": is 3, but this safeshuffle reads 2)"},
      {probe_json("{}", "-1"), R"("schema_version": not a positive integer)"},
      {probe_json("{}", "1.0"), R"("schema_version": not a positive integer)"},
      {probe_json("{}", "18446744073709551615"), R"("schema_version": not a positive integer)"},
      {probe_json("[]"), "\"costs\": not a JSON object"},
      {probe_json(R"({"pack": 0})"), R"("costs.pack": not a positive number)"},
      {probe_json(R"({"pack": -1})"), R"("costs.pack": not a positive number)"},
      {probe_json(R"({"pack": "fast"})"), R"("costs.pack": not a positive number)"},
      {probe_json(R"({"pack": null})"), R"("costs.pack": not a positive number)"},
      {probe_json(R"({"pack": 1e999})"), "not valid JSON"},
      {probe_json(R"({"pack": NaN})"), "not valid JSON"},
      {probe_json(R"({"pack": 1, "pack": 2})"), "appears twice"},
      {probe_json("{}") + "x", "not valid JSON"},
      {R"({"schema_version": 2, "date": "d", "costs": {}})", R"("place": missing)"},
      {R"({"schema_version": 2, )" + place + R"(, "costs": {}})", R"("date": missing)"},
      {R"({"schema_version": 2, "date": 1, )" + place + R"(, "costs": {}})", "not a string"},
      {R"({"schema_version": 2, "date": "d", )" + place + "}", R"("costs": missing)"},
      {std::string(100, '[') + std::string(100, ']'), "nested deeper than 32 levels"},
  };
  for (const auto& each : cases) {
    const ErrorRecord record =
        failure<ConfigError>([&] { costs_from_probe(each.first, "kept.json"); });
    CAPTURE(each.first, record.cause);
    CHECK(record.file == "kept.json");
    CHECK(record.cause.find(each.second) != std::string::npos);
  }
}

TEST_CASE("a place must be whole", "[costs]") {
  for (const auto& [field, value] : std::vector<std::pair<std::string, std::string>>{
           {"\"ranks_per_node\": 2", "\"ranks_per_node\": 0"},
           {"\"ranks_per_node\": 2", "\"ranks_per_node\": 4294967296"},
           {"\"nodes\": 1", "\"nodes\": \"1\""},
           {"\"host\": \"h\"", "\"host\": 1"},
           {"\"filesystem\": \"ext4\", ", ""}}) {
    std::string text = probe_json("{}");
    text.replace(text.find(field), field.size(), value);
    CAPTURE(text);
    CHECK_THROWS_AS(costs_from_probe(text), ConfigError);
  }
}

TEST_CASE("defaults fill in what is not known, and are positive", "[costs]") {
  const Costs host = with_defaults({.pack = 5}, DeviceKind::host);
  CHECK(host.pack == 5);
  CHECK(host.exchange == default_costs(DeviceKind::host).exchange);
  CHECK(host.host_to_device == 0);
  const Costs gpu = default_costs(DeviceKind::cuda);
  for (const double cost :
       {gpu.read_cold_direct_rank, gpu.read_cold_direct_node, gpu.read_cold_buffered_rank,
        gpu.read_cold_buffered_node, gpu.read_warm_rank, gpu.read_warm_node, gpu.first_touch,
        gpu.pack, gpu.pack_convert, gpu.host_to_device, gpu.exchange, gpu.wave_seconds}) {
    CHECK(cost > 0);
  }
  CHECK(with_defaults({}, DeviceKind::cuda) == gpu);
  CHECK(default_costs(DeviceKind::automatic) == default_costs(DeviceKind::host));
}
