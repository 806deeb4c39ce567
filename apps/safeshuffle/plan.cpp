// safeshuffle plan: what each rank would read, send and keep, without GPU or MPI.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "safeshuffle/loader.hpp"

#include "commands.hpp"
#include "core/defaults.hpp"
#include "option.hpp"
#include "output.hpp"
#include "pipeline/placement_json.hpp"
#include "shared_options.hpp"
#include "size.hpp"
#include "summary.hpp"
#include "table.hpp"
#include "warnings.hpp"

namespace safeshuffle::app {
namespace {

using Json = nlohmann::ordered_json;

struct PlanCommand {
  std::vector<std::string> paths;
  std::uint32_t world = 1;
  bool json = false;
  DeviceKind device = DeviceKind::host;
  Options options;
};

// Without directories; the list of all files has the full paths.
std::vector<std::string> file_names(const Plan& plan, const RankSummary& rank) {
  std::vector<std::string> names;
  for (const std::uint32_t file : rank.files) {
    names.push_back(std::filesystem::path(plan.catalog().files()[file].path).filename());
  }
  return names;
}

Json files_json(const Catalog& catalog) {
  Json json = Json::array();
  for (const FileInfo& file : catalog.files()) {
    json.push_back({{"path", file.path}, {"bytes", file.size}});
  }
  return json;
}

Json rank_json(const Plan& plan, const RankSummary& rank) {
  return {{"rank", rank.rank},
          {"files", file_names(plan, rank)},
          {"read_bytes", rank.read_bytes},
          {"sliced_bytes", rank.sliced_bytes},
          {"sent_bytes", rank.sent_bytes},
          {"received_bytes", rank.received_bytes},
          {"kept_bytes", rank.kept_bytes},
          {"arena_bytes", rank.arena_bytes},
          {"slab_bytes", rank.slab_bytes},
          {"pack_bytes", rank.pack_bytes},
          {"landing_bytes", rank.landing_bytes},
          {"peak_device_bytes", rank.peak_device_bytes}};
}

// Printed only after the proof: an unprovable plan is an error.
void print_json(const Plan& plan, const Selection& selection) {
  Json json{{"world", plan.world()},
            {"replicas", plan.replicas()},
            {"assignment", name(plan.assignment())},
            {"assignment_reason", plan.assignment_reason()},
            {"window", plan.window()},
            {"waves", plan.waves()},
            {"hash", fmt::format("{:016x}", plan.hash())},
            {"proof", "ok"},
            {"warnings", plan.warnings()},
            {"placement", pipeline::placement_json(summarize(plan.catalog(), plan.targets()))},
            {"files", files_json(plan.catalog())},
            {"ranks", Json::array()}};
  if (selection.stage) json["pipeline_stage"] = pipeline::stage_json(*selection.stage);
  for (const RankSummary& rank : plan.ranks()) json["ranks"].push_back(rank_json(plan, rank));
  print_result(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void print_table(const Plan& plan) {
  Table table({{"rank"}, {"files"}, {"read"}, {"sent"}, {"received"}, {"kept"}, {"peak device"}});
  for (const RankSummary& rank : plan.ranks()) {
    table.add({std::to_string(rank.rank), std::to_string(rank.files.size()),
               format_size(rank.read_bytes), format_size(rank.sent_bytes),
               format_size(rank.received_bytes), format_size(rank.kept_bytes),
               format_size(rank.peak_device_bytes)});
  }
  print_result(fmt::format("{}\n{}{} of {} in {}; {} with a window of {}\n", table.text(),
                           placement_line(summarize(plan.catalog(), plan.targets())),
                           count(plan.catalog().tensors().size(), "tensor"),
                           format_size(plan.catalog().tensor_bytes()),
                           count(plan.catalog().files().size(), "file"),
                           count(plan.waves(), "wave"), format_binary_size(plan.window())));
  if (plan.replicas() != 1) {
    print_result(fmt::format("{} of {} each: rank r has shard r mod {}\n",
                             count(plan.replicas(), "replica"), count(plan.replica_size(), "rank"),
                             plan.replica_size()));
  }
  print_result(assignment_line(plan.assignment(), plan.assignment_reason()));
  print_result(fmt::format("proof: ok; plan hash: {:016x}\n", plan.hash()));
}

// With the window that a load onto the device uses. The page cache is as it would be if all ranks
// were started here and now.
PlanOptions plan_options(const PlanCommand& command, double cached_share) {
  PlanOptions options = command.options.plan;
  options.site.device = command.device;
  options.site.cached_share = cached_share;
  if (options.window == 0 && command.device == DeviceKind::cuda) {
    options.window = core::gpu_defaults.window;
  }
  return options;
}

void plan(const PlanCommand& command) {
  Checkpoint checkpoint = open_checkpoint(command.paths);
  const TpPlan rules = select_tp_plan(command.options, checkpoint, command.world);
  auto targets = select_targets(checkpoint, rules, command.options, command.world);
  const Plan plan = make_plan(std::move(checkpoint.catalog), std::move(targets), command.world,
                              plan_options(command, checkpoint.cached_share));
  plan.prove();
  print_warnings(plan.warnings());
  command.json ? print_json(plan, command.options.selection) : print_table(plan);
}

}  // namespace

Command add_plan(CLI::App& parser) {
  const auto command = std::make_shared<PlanCommand>();
  CLI::App* sub = parser.add_subcommand(
      "plan", "Show what each rank would read, send and keep, and prove the plan; needs no MPI");
  sub->add_option("MODEL", command->paths, "A directory, an .index.json, or .safetensors files")
      ->required();
  add_count(*sub, "--world", "N", command->world, most_ranks, "Number of ranks")->required();
  sub->add_flag("--json", command->json, "Print JSON");
  add_choice<DeviceKind>(*sub, "--device", "DEVICE", command->device,
                         {{"host", DeviceKind::host}, {"cuda", DeviceKind::cuda}},
                         "Device whose default window to use");
  add_plan_options(*sub, command->options);
  return [command] { plan(*command); };
}

}  // namespace safeshuffle::app
