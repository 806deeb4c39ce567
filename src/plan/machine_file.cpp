// Machines as JSON: docs/prediction.md.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "safeshuffle/prediction.hpp"

#include "core/embedded.hpp"
#include "placement/json_object.hpp"
#include "plan/cost_fields.hpp"

namespace safeshuffle {
namespace plan {
namespace {

using placement::JsonObject;

// Costs that predictions use; the others may be left out.
constexpr std::array needed_everywhere{&Costs::read_cold_direct_rank,
                                       &Costs::read_cold_direct_node,
                                       &Costs::read_warm_rank,
                                       &Costs::read_warm_node,
                                       &Costs::pack,
                                       &Costs::pack_convert,
                                       &Costs::exchange,
                                       &Costs::wave_seconds};

bool is_needed(double Costs::*cost, DeviceKind device) {
  if (cost == &Costs::first_touch) return device == DeviceKind::host;
  if (cost == &Costs::host_to_device) return device == DeviceKind::cuda;
  return std::ranges::find(needed_everywhere, cost) != needed_everywhere.end();
}

DeviceKind parse_device(const JsonObject& json) {
  const std::string device = json.text("device");
  if (device == "host") return DeviceKind::host;
  if (device == "cuda") return DeviceKind::cuda;
  json.fail("device", "neither \"host\" nor \"cuda\"");
}

class MachineFile {
 public:
  explicit MachineFile(const placement::Document& document) : document_(document) {
    machine_.name = document.name;
  }

  MachineModel parse() && {
    const nlohmann::json value = placement::parse_strict(document_);
    const JsonObject json(value, "", document_);
    json.allow_only({"description", "device", "ranks_per_node", "cores", "costs",
                     "host_to_device_node", "network_node"});
    machine_.description = json.text("description");
    machine_.device = parse_device(json);
    machine_.ranks_per_node = count(json, "ranks_per_node");
    if (machine_.device == DeviceKind::host) machine_.cores = count(json, "cores");
    machine_.host_to_device_node = optional_number(json, "host_to_device_node");
    machine_.network_node = optional_number(json, "network_node");
    parse_costs(json);
    return std::move(machine_);
  }

 private:
  void parse_costs(const JsonObject& json) {
    const nlohmann::json* value = json.find("costs");
    if (value == nullptr) json.fail("costs", "missing");
    const JsonObject costs(*value, "costs", document_);
    for (const auto& item : value->items()) check_name(costs, item.key());
    for (const CostField& field : cost_fields) {
      machine_.costs.*field.value = is_needed(field.value, machine_.device)
                                        ? number(costs, field.name)
                                        : optional_number(costs, field.name);
    }
  }

  static void check_name(const JsonObject& costs, const std::string& name) {
    const auto known = std::ranges::any_of(
        cost_fields, [&](const CostField& field) { return field.name == name; });
    if (!known) costs.fail(name, "unknown field");
  }

  double optional_number(const JsonObject& json, const char* field) {
    return json.has(field) ? number(json, field) : 0;
  }

  // {"value": 1e9, "source": "data sheet"}
  double number(const JsonObject& json, const char* field) {
    const nlohmann::json* found = json.find(field);
    if (found == nullptr) json.fail(field, "missing");
    const JsonObject object(*found, json.path(field), document_);
    object.allow_only({"value", "source"});
    const nlohmann::json* value = object.find("value");
    if (value == nullptr) object.fail("value", "missing");
    if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() <= 0) {
      object.fail("value", "not a positive number");
    }
    if (object.text("source").empty()) object.fail("source", "empty");
    machine_.assumptions.push_back({json.path(field), value->get<double>(), object.text("source")});
    return value->get<double>();
  }

  std::uint32_t count(const JsonObject& json, const char* field) {
    const double value = number(json, field);
    constexpr double most = 65536;
    if (value != std::floor(value) || value > most) {
      json.fail(field, "not an integer from 1 to 65536");
    }
    return static_cast<std::uint32_t>(value);
  }

  const placement::Document& document_;
  MachineModel machine_;
};

}  // namespace
}  // namespace plan

MachineModel machine_from_json(std::string_view json, const std::string& name) {
  const placement::Document document{name, std::string(json)};
  return plan::MachineFile(document).parse();
}

std::vector<MachineModel> built_in_machines() {
  std::vector<MachineModel> all;
  for (const core::EmbeddedFile& file : core::embedded_machines()) {
    all.push_back(machine_from_json(file.text, std::string(file.stem)));
  }
  return all;
}

}  // namespace safeshuffle
