#include "machine.hpp"

#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "safeshuffle/error.hpp"
#include "safeshuffle/probe.hpp"

#include "core/posix_file.hpp"
#include "core/process.hpp"
#include "option.hpp"
#include "output.hpp"
#include "plan/cost_fields.hpp"
#include "probe/place.hpp"
#include "shared_options.hpp"
#include "source/select.hpp"

namespace safeshuffle::app {
namespace {

constexpr std::uint64_t most_bytes = std::uint64_t{1} << 20;  // of a file

std::string built_in_names() {
  std::vector<std::string> names;
  for (const MachineModel& machine : built_in_machines()) names.push_back(machine.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

bool is_probe(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  return json.is_object() && json.contains("place");
}

MachineModel read_machine(const std::string& path) {
  const std::string text = core::read_text(path, most_bytes);
  return is_probe(text) ? machine_from_probe(text, path) : machine_from_json(text, path);
}

MachineModel named_machine(const std::string& name) try {
  for (MachineModel& machine : built_in_machines()) {
    if (machine.name == name) return std::move(machine);
  }
  return read_machine(name);
} catch (const IoError& error) {
  throw ConfigError("no machine '" + name + "': neither one of " + built_in_names() +
                    " nor a file that can be read (" + error.record().cause + ")");
}

// The one that a load with `world` ranks on this node uses.
std::optional<KeptProbe> kept_probe(std::uint32_t world, const std::string& path) {
  const std::string directory = probe_directory();
  if (directory.empty()) return {};
  ProbePlace place = probing::own_place(path, "host");
  place.ranks_per_node = world;
  return find_probe(place, directory);
}

MachineModel default_machine(DeviceKind device, std::uint32_t world, const std::string& path) {
  const bool is_url = source::is_url(path);
  MachineModel machine;
  machine.name = is_url ? "defaults for URLs" : "defaults";
  machine.description = "no probe of this machine with as many ranks is used";
  machine.device = device;
  machine.ranks_per_node = world;
  machine.cores = core::available_cores();
  machine.costs = with_defaults(is_url ? default_remote_costs() : Costs{}, device);
  for (const plan::CostField& field : plan::cost_fields) {
    const double cost = machine.costs.*field.value;
    if (cost > 0)
      machine.assumptions.push_back({std::string("costs.") + field.name, cost, "default"});
  }
  return machine;
}

MachineModel probed_machine(const std::string& probe, const std::string& path) {
  MachineModel machine = read_machine(probe);
  if (source::is_url(path)) machine.costs = with_defaults(machine.costs, default_remote_costs());
  return machine;
}

MachineModel this_machine(DeviceKind device, std::uint32_t world, const std::string& path) try {
  if (device == DeviceKind::host) {
    if (const auto probe = kept_probe(world, path)) return probed_machine(probe->path, path);
  }
  return default_machine(device, world, path);
} catch (const Error& error) {
  print_warnings({"the kept probe is not used: " + describe(error.record())});
  return default_machine(device, world, path);
}

double cached_share(CacheState state, double now) {
  return state == CacheState::now ? now : state == CacheState::warm ? 1 : 0;
}

}  // namespace

void add_machine_options(CLI::App& parser, MachineOptions& options) {
  CLI::Option* device = add_choice<DeviceKind>(
      parser, "--device", "DEVICE", options.device,
      {{"host", DeviceKind::host}, {"cuda", DeviceKind::cuda}}, "Device of this machine");
  parser
      .add_option("--machine", options.machine,
                  "Machine to plan for: " + built_in_names() + ", or the file of one or of a probe")
      ->type_name("MACHINE")
      ->default_str("this one")
      ->excludes(device);
  add_count(parser, "--nodes", "N", options.nodes, most_ranks,
            "Number of nodes that the ranks are on")
      ->default_str("as few as have a GPU for each; on the host 1");
  add_choice<CacheState>(
      parser, "--cache", "STATE", options.cache,
      {{"now", CacheState::now}, {"cold", CacheState::cold}, {"warm", CacheState::warm}},
      "What the page cache has of the files: what it has now, nothing, or all");
}

Place select_place(const MachineOptions& options, const Checkpoint& checkpoint,
                   const std::string& path, std::uint32_t world) {
  if (options.machine.empty() && options.cache != CacheState::now && source::is_url(path)) {
    throw ConfigError("--cache is of files on this machine, and '" + path + "' is not on it");
  }
  Place place{options.machine.empty() ? this_machine(options.device, world, path)
                                      : named_machine(options.machine),
              {}};
  place.site = site_on(place.machine, world, options.nodes,
                       cached_share(options.cache, checkpoint.cached_share));
  place.site.reads_directly = !options.machine.empty() || checkpoint.reads_directly;
  return place;
}

}  // namespace safeshuffle::app
