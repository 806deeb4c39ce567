// Predictions from what a probe measured.
#include <algorithm>
#include <string>

#include "safeshuffle/probe.hpp"

#include "plan/cost_fields.hpp"
#include "probe/json.hpp"

namespace safeshuffle {

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

}  // namespace safeshuffle
