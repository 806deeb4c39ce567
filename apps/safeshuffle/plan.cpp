// safeshuffle plan: what each rank would read, send and keep, without GPU or MPI.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "safeshuffle/loader.hpp"
#include "safeshuffle/prediction.hpp"

#include "commands.hpp"
#include "machine.hpp"
#include "option.hpp"
#include "output.hpp"
#include "output/placement_json.hpp"
#include "shared_options.hpp"
#include "size.hpp"
#include "summary.hpp"
#include "table.hpp"

namespace safeshuffle::app {
namespace {

using Json = nlohmann::ordered_json;

struct PlanCommand {
  std::vector<std::string> paths;
  std::uint32_t world = 1;
  bool json = false;
  bool predict = false;
  MachineOptions machine;
  Options options;
};

struct Planned {
  Plan plan;
  Place place;
  std::vector<std::string> warnings;     // about the checkpoint and the plan
  std::vector<TpPlan::Whole> whole;      // by the rules, on each of several ranks
  std::optional<StepSeconds> predicted;  // if asked for
};

Planned make(const PlanCommand& command) {
  const std::uint32_t world = command.world;
  Checkpoint checkpoint = open_checkpoint(command.paths, command.options.remote);
  Place place = select_place(command.machine, checkpoint, command.paths.front(), world);
  Options options = command.options;
  options.plan.site = place.site;
  const TpPlan rules = select_tp_plan(options, checkpoint, world);
  auto targets = select_targets(checkpoint, rules, options, world);
  std::vector<std::string> warnings = open_warnings(checkpoint, rules, options, world);
  std::vector<TpPlan::Whole> whole;
  if (world > 1 && !checkpoint.sharded_state) {
    whole = rules.whole(checkpoint.catalog, targets);
  }
  Plan plan = make_plan(std::move(checkpoint.catalog), std::move(targets), world, options.plan);
  std::ranges::move(plan.warnings(), std::back_inserter(warnings));
  std::optional<StepSeconds> predicted;
  if (command.predict) predicted = predict(plan, place.site);
  return {std::move(plan), std::move(place), std::move(warnings), std::move(whole), predicted};
}

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

Json assumptions_json(const MachineModel& machine) {
  Json json = Json::array();
  for (const Assumption& each : machine.assumptions) {
    json.push_back({{"name", each.name}, {"value", each.value}, {"source", each.source}});
  }
  return json;
}

Json prediction_json(const Place& place, const StepSeconds& seconds) {
  return {{"machine", place.machine.name},
          {"nodes", place.site.nodes},
          {"cached_share", place.site.cached_share},
          {"seconds",
           {{"open", seconds.open},
            {"allocate", seconds.allocate},
            {"read", seconds.read},
            {"host_to_device", seconds.host_to_device},
            {"pack", seconds.pack},
            {"exchange", seconds.exchange},
            {"waves", seconds.waves},
            {"total", seconds.total}}},
          {"assumptions", assumptions_json(place.machine)}};
}

constexpr std::size_t most_named = 4;
constexpr std::uint64_t little = 100;  // one percent is not worth a line

std::string whole_line(const std::vector<TpPlan::Whole>& whole, std::uint64_t all_bytes) {
  std::uint64_t bytes = 0;
  for (const TpPlan::Whole& each : whole) bytes += each.bytes;
  if (bytes <= all_bytes / little) return {};
  std::string line;
  for (const TpPlan::Whole& each : std::span(whole).first(std::min(whole.size(), most_named))) {
    line += fmt::format("{} {} {}", line.empty() ? "whole on every rank:" : ",",
                        format_size(each.bytes),
                        each.key.empty() ? "without a rule" : "by rule \"" + each.key + "\"");
  }
  return line + (whole.size() > most_named ? ", ...\n" : "\n");
}

Json whole_json(const std::vector<TpPlan::Whole>& whole) {
  Json json = Json::array();
  for (const TpPlan::Whole& each : whole)
    json.push_back({{"rule", each.key}, {"bytes", each.bytes}});
  return json;
}

// Printed only after the proof: an unprovable plan is an error.
void print_json(const Planned& planned, const Selection& selection) {
  const Plan& plan = planned.plan;
  Json json{{"world", plan.world()},
            {"replicas", plan.replicas()},
            {"assignment", name(plan.assignment())},
            {"assignment_reason", plan.assignment_reason()},
            {"order", name(plan.order())},
            {"window", plan.window()},
            {"waves", plan.waves()},
            {"hash", fmt::format("{:016x}", plan.hash())},
            {"proof", "ok"},
            {"warnings", planned.warnings},
            {"placement", output::placement_json(summarize(plan.catalog(), plan.targets()))},
            {"whole", whole_json(planned.whole)},
            {"files", files_json(plan.catalog())},
            {"ranks", Json::array()}};
  if (selection.stage) json["pipeline_stage"] = output::stage_json(*selection.stage);
  for (const RankSummary& rank : plan.ranks()) json["ranks"].push_back(rank_json(plan, rank));
  if (planned.predicted) {
    json["prediction"] = prediction_json(planned.place, *planned.predicted);
  }
  print_result(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::string prediction_text(const Plan& plan, const Place& place, const StepSeconds& seconds) {
  Table table({{"seconds", Align::left},
               {"open"},
               {"allocate"},
               {"read"},
               {"host to device"},
               {"pack"},
               {"exchange"},
               {"waves"},
               {"total"}});
  std::vector<std::string> cells{"predicted"};
  for (const double step : {seconds.open, seconds.allocate, seconds.read, seconds.host_to_device,
                            seconds.pack, seconds.exchange, seconds.waves, seconds.total}) {
    cells.push_back(fmt::format("{:.3f}", step));
  }
  table.add(cells);
  return fmt::format(
      "\n{}on {} of {} ({}), {:.0f} % of the files in the page cache: {:.2f} GB/s; "
      "steps overlap\n",
      table.text(), count(place.site.nodes, "node"), place.machine.name, place.machine.description,
      100 * place.site.cached_share,
      static_cast<double>(plan.needed_bytes()) / seconds.total / 1e9);
}

void print_table(const Planned& planned) {
  const Plan& plan = planned.plan;
  Table table({{"rank"}, {"files"}, {"read"}, {"sent"}, {"received"}, {"kept"}, {"peak device"}});
  for (const RankSummary& rank : plan.ranks()) {
    table.add({std::to_string(rank.rank), std::to_string(rank.files.size()),
               format_size(rank.read_bytes), format_size(rank.sent_bytes),
               format_size(rank.received_bytes), format_size(rank.kept_bytes),
               format_size(rank.peak_device_bytes)});
  }
  print_result(fmt::format("{}\n{}{}{} of {} in {}; {} with a window of {}\n", table.text(),
                           placement_line(summarize(plan.catalog(), plan.targets())),
                           whole_line(planned.whole, plan.catalog().tensor_bytes()),
                           count(plan.catalog().tensors().size(), "tensor"),
                           format_size(plan.catalog().tensor_bytes()),
                           count(plan.catalog().files().size(), "file"),
                           count(plan.waves(), "wave"), format_binary_size(plan.window())));
  if (plan.replicas() != 1) {
    print_result(fmt::format("{} of {} each: rank r has shard r mod {}\n",
                             count(plan.replicas(), "replica"), count(plan.replica_size(), "rank"),
                             plan.replica_size()));
  }
  print_result(assignment_line(plan.assignment(), plan.order(), plan.assignment_reason()));
  print_result(fmt::format("proof: ok; plan hash: {:016x}\n", plan.hash()));
  if (planned.predicted) {
    print_result(prediction_text(plan, planned.place, *planned.predicted));
  }
}

void plan(const PlanCommand& command) {
  const Planned planned = make(command);
  planned.plan.prove();
  print_warnings(planned.warnings);
  command.json ? print_json(planned, command.options.selection) : print_table(planned);
}

}  // namespace

void add_plan(CLI::App& parser) {
  const auto command = std::make_shared<PlanCommand>();
  CLI::App* sub = parser.add_subcommand(
      "plan", "Show what each rank would read, send and keep, and prove the plan; needs no MPI");
  sub->add_option("MODEL", command->paths,
                  "A directory, an .index.json, .safetensors files, or URLs")
      ->required();
  add_count(*sub, "--world", "N", command->world, most_ranks, "Number of ranks")->required();
  sub->add_flag("--json", command->json, "Print JSON");
  add_machine_options(*sub, command->machine);
  sub->add_flag("--predict", command->predict, "Also predict how many seconds each step takes");
  add_plan_options(*sub, command->options);
  sub->callback([command] { plan(*command); });
}

}  // namespace safeshuffle::app
