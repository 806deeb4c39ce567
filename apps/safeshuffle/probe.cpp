// safeshuffle probe: what this machine can do at most for loading given files.
#include "safeshuffle/probe.hpp"

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "safeshuffle/error.hpp"

#include "comm/control/agreement.hpp"
#include "commands.hpp"
#include "launch.hpp"
#include "output.hpp"
#include "probe_table.hpp"
#include "progress.hpp"
#include "shared_options.hpp"

namespace safeshuffle::app {
namespace {

struct ProbeCommand {
  std::vector<std::string> paths;
  Device device = Device::automatic();
  bool quick = false;
  bool json = false;
  double timeout_seconds = 300;
  RemoteOptions remote;
  ProgressStyle progress = ProgressStyle::automatic;
};

Probe measure(const ProbeCommand& command, const Communicator& comm, ProbeOptions options) {
  ProgressPrinter printer(command.progress, "probing");
  options.on_progress = [&printer](double share) { printer.update_share(share); };
  return probe(command.paths, comm, options);
}

// What cannot be kept is still printed.
std::string keep(const Probe& probe) try {
  const std::string directory = probe_directory();
  if (!directory.empty()) return keep_probe(probe, directory);
  print_warnings({"the result is not kept: neither XDG_CACHE_HOME nor HOME is set"});
  return {};
} catch (const Error& error) {
  print_warnings({"the result is not kept: " + describe(error.record())});
  return {};
}

void print(const ProbeCommand& command, const Probe& probe) {
  const std::string path = keep(probe);
  if (command.json) return print_result(to_json(probe) + "\n");
  const std::string kept = path.empty() ? "" : fmt::format("kept in {}\n", path);
  print_result(probe_text(probe) + kept);
}

void run(const ProbeCommand& command) {
  check_device(command.device);
  ProbeOptions options;
  options.quick = command.quick;
  options.remote = command.remote;
  options.timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(command.timeout_seconds * 1000));
  leave_default_binding();
  const Communicator comm = join_group(command.device, options.timeout);
  const Probe result = measure(command, comm, options);
  comm::agree_on(comm.control(), options.timeout, [&]() -> std::string {
    if (comm.rank() == 0) print(command, result);
    return {};
  });
}

}  // namespace

void add_probe(CLI::App& parser) {
  const auto command = std::make_shared<ProbeCommand>();
  CLI::App* sub = parser.add_subcommand(
      "probe", "Measure what this machine can do at most for loading these files");
  sub->add_option("MODEL", command->paths,
                  "A directory, an .index.json, .safetensors files, or URLs")
      ->required();
  sub->add_flag("--quick", command->quick, "Take a few seconds instead of up to a minute");
  add_device(*sub, command->device, "Where a load would put the tensors");
  sub->add_flag("--json", command->json, "Print JSON");
  add_progress(*sub, command->progress);
  add_remote(*sub, command->remote);
  add_timeout(*sub, command->timeout_seconds, 10);
  sub->callback([command] { run(*command); });
}

}  // namespace safeshuffle::app
