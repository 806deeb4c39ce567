#include "probe/json.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "placement/json_object.hpp"
#include "plan/cost_fields.hpp"

namespace safeshuffle {
namespace probing {
namespace {

using placement::JsonObject;

constexpr std::uint64_t probe_schema_version = 2;

const char* text_of(Measurement::Of of) {
  switch (of) {
    case Measurement::Of::one_rank:
      return "one rank";
    case Measurement::Of::node:
      return "node";
    case Measurement::Of::each_rank:
      break;
  }
  return "each rank";
}

nlohmann::ordered_json spread_json(const Spread& spread) {
  return {{"median", spread.median},
          {"least", spread.least},
          {"most", spread.most},
          {"runs", spread.runs}};
}

nlohmann::ordered_json measurement_json(const Measurement& measurement) {
  nlohmann::ordered_json json{{"name", measurement.name}, {"of", text_of(measurement.of)}};
  if (measurement.result) {
    json[measurement.is_time ? "seconds" : "bytes_per_second"] = spread_json(*measurement.result);
    json["bytes"] = measurement.bytes;
  }
  if (!measurement.obstacle.empty()) json["obstacle"] = measurement.obstacle;
  return json;
}

nlohmann::ordered_json costs_json(const Costs& costs) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const plan::CostField& field : plan::cost_fields) {
    if (costs.*field.value > 0) json[field.name] = costs.*field.value;
  }
  return json;
}

nlohmann::ordered_json place_json(const ProbePlace& place) {
  return {{"host", place.host},
          {"filesystem", place.filesystem},
          {"filesystem_device", place.filesystem_device},
          {"device", place.device},
          {"ranks_per_node", place.ranks_per_node},
          {"nodes", place.nodes}};
}

const JsonObject object(const JsonObject& json, std::string_view field) {
  const nlohmann::json* value = json.find(field);
  if (value == nullptr) json.fail(field, "missing");
  return {*value, json.path(field), json.document()};
}

std::uint32_t count(const JsonObject& json, std::string_view field) {
  const nlohmann::json* value = json.find(field);
  if (value == nullptr) json.fail(field, "missing");
  constexpr auto most = std::numeric_limits<std::uint32_t>::max();
  const bool fits = value->is_number_unsigned() && value->get<std::uint64_t>() != 0 &&
                    value->get<std::uint64_t>() <= most;
  if (!fits) json.fail(field, "not a positive integer");
  return value->get<std::uint32_t>();
}

// Of rank 0's node. Without them, a probe is of another place than any load, but its costs can
// still be given.
std::string parse_cpu(const nlohmann::json& probe) {
  const nlohmann::json::json_pointer cpu("/machine/cpu");
  if (!probe.contains(cpu) || !probe.at(cpu).is_string()) return {};
  return probe.at(cpu).get<std::string>();
}

unsigned parse_number_of(const nlohmann::json& probe, const char* field) {
  const nlohmann::json::json_pointer number(std::string("/machine/") + field);
  if (!probe.contains(number) || !probe.at(number).is_number_unsigned()) return 0;
  return probe.at(number).get<unsigned>();
}

ProbePlace parse_place(const JsonObject& probe) {
  const JsonObject json = object(probe, "place");
  return {.host = json.text("host"),
          .filesystem = json.text("filesystem"),
          .filesystem_device = json.text("filesystem_device"),
          .cpu = parse_cpu(probe.value()),
          .cpus = parse_number_of(probe.value(), "cpus"),
          .device = json.text("device"),
          .ranks_per_node = count(json, "ranks_per_node"),
          .nodes = count(json, "nodes")};
}

double cost(const JsonObject& json, const char* field) {
  const nlohmann::json* value = json.find(field);
  if (value == nullptr) return 0;
  if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() <= 0) {
    json.fail(field, "not a positive number");
  }
  return value->get<double>();
}

Costs parse_costs(const JsonObject& json) {
  Costs costs;
  for (const plan::CostField& field : plan::cost_fields)
    costs.*field.value = cost(json, field.name);
  return costs;
}

}  // namespace

ProbeText parse_probe(const placement::Document& document) {
  const nlohmann::json value = placement::parse_strict(document);
  const JsonObject json(value, "", document);
  if (const std::uint32_t version = count(json, "schema_version");
      version != probe_schema_version) {
    json.fail("schema_version", "is " + std::to_string(version) + ", but this safeshuffle reads " +
                                    std::to_string(probe_schema_version) + "; probe again");
  }
  return {parse_place(json), json.text("date"), parse_number_of(value, "cores"),
          parse_costs(object(json, "costs"))};
}

}  // namespace probing

Costs costs_from_probe(std::string_view json, const std::string& name) {
  return probing::parse_probe({name, std::string(json)}).costs;
}

MachineModel machine_from_probe(std::string_view json, const std::string& name) {
  const probing::ProbeText probe = probing::parse_probe({name, std::string(json)});
  MachineModel machine;
  machine.name = name;
  machine.description = "probe of " + probe.place.host + ", " + probe.date;
  machine.device = probe.place.device == "host" ? DeviceKind::host : DeviceKind::cuda;
  machine.ranks_per_node = probe.place.ranks_per_node;
  machine.cores = std::max(1U, probe.cores);
  machine.costs = with_defaults(probe.costs, machine.device);
  for (const plan::CostField& field : plan::cost_fields) {
    const double value = machine.costs.*field.value;
    const bool measured = probe.costs.*field.value != 0;
    if (value == 0) continue;  // of GPUs, on the host
    machine.assumptions.push_back({std::string("costs.") + field.name, value,
                                   measured ? machine.description : "default, not measured"});
  }
  return machine;
}

std::string to_json(const Probe& probe) {
  using namespace probing;
  nlohmann::ordered_json json{{"schema_version", probe_schema_version},
                              {"version", probe.version},
                              {"date", probe.date},
                              {"quick", probe.quick},
                              {"place", place_json(probe.place)}};
  json["machine"] = {{"cpu", probe.place.cpu},
                     {"cpus", probe.place.cpus},
                     {"cores", probe.machine.cores},
                     {"memory_bytes", probe.machine.memory_bytes},
                     {"kernel", probe.machine.kernel}};
  json["transport"] = probe.transport;
  json["reading"] = {{"engine", probe.engine},
                     {"threads", probe.threads},
                     {"chunk", probe.chunk},
                     {"window", probe.window},
                     {"sample_bytes", probe.sample_bytes}};
  json["measurements"] = nlohmann::ordered_json::array();
  for (const Measurement& each : probe.measurements) {
    json["measurements"].push_back(measurement_json(each));
  }
  json["costs"] = costs_json(costs_of(probe));
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace safeshuffle
