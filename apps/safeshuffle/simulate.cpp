// safeshuffle simulate: how a load would go on a machine that you need not have, event by event.
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "safeshuffle/prediction.hpp"
#include "safeshuffle/report.hpp"

#include "commands.hpp"
#include "core/atomic_file.hpp"
#include "load_outputs.hpp"
#include "machine.hpp"
#include "output.hpp"
#include "shared_options.hpp"
#include "size.hpp"
#include "summary.hpp"
#include "table.hpp"
#include "warnings.hpp"

namespace safeshuffle::app {
namespace {

using Json = nlohmann::ordered_json;

struct SimulateCommand {
  std::vector<std::string> paths;
  std::uint32_t world = 1;
  bool json = false;
  std::string trace;
  MachineOptions machine;
  Options options;
};

// Seconds of a rank, by name.
struct RankSeconds {
  const char* name;
  double SimulatedRank::*seconds;
};

constexpr std::array rank_seconds{RankSeconds{"open", &SimulatedRank::open},
                                  RankSeconds{"read", &SimulatedRank::read},
                                  RankSeconds{"host to device", &SimulatedRank::host_to_device},
                                  RankSeconds{"pack", &SimulatedRank::pack},
                                  RankSeconds{"exchange", &SimulatedRank::exchange},
                                  RankSeconds{"reading", &SimulatedRank::read_busy}};

// With their names in JSON.
constexpr std::array shared{
    std::pair{"storage", &SharedUse::storage}, std::pair{"host", &SharedUse::host},
    std::pair{"copies", &SharedUse::copies}, std::pair{"network_out", &SharedUse::network_out},
    std::pair{"network_in", &SharedUse::network_in}};

double rate(const Plan& plan, double seconds) {
  return seconds > 0 ? static_cast<double>(plan.needed_bytes()) / seconds : 0;
}

std::string phases_table(const Simulation& simulation) {
  Table table({{"seconds", Align::left}, {"least"}, {"average"}, {"most"}});
  for (const RankSeconds& column : rank_seconds) {
    double least = std::numeric_limits<double>::infinity();
    double most = 0;
    double sum = 0;
    for (const SimulatedRank& rank : simulation.ranks) {
      const double seconds = rank.*column.seconds;
      least = std::min(least, seconds);
      most = std::max(most, seconds);
      sum += seconds;
    }
    table.add({column.name, fmt::format("{:.3f}", least),
               fmt::format("{:.3f}", sum / static_cast<double>(simulation.ranks.size())),
               fmt::format("{:.3f}", most)});
  }
  return table.text();
}

std::string use_line(const SharedUse& use) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : shared) {
    if (use.*value > 0) parts.push_back(fmt::format("{} {:.0f} %", name, 100 * (use.*value)));
  }
  return parts.empty() ? "" : fmt::format("busy on the busiest node: {}\n", fmt::join(parts, ", "));
}

std::string text_result(const OnCluster& on, const Simulation& simulation) {
  return fmt::format(
      "{}\n{}{}{}; {} with a window of {}\nloads {} onto {} in {:.3f} s: {:.2f} GB/s; the first "
      "tensor after {:.3f} s\n",
      phases_table(simulation), assignment_line(on.plan.assignment(), on.plan.assignment_reason()),
      use_line(simulation.use), text_of(on.cluster), count(on.plan.waves(), "wave"),
      format_binary_size(on.plan.window()), format_size(on.plan.needed_bytes()),
      count(on.plan.world(), "rank"), simulation.seconds, rate(on.plan, simulation.seconds) / 1e9,
      simulation.first_tensor_seconds);
}

Json rank_json(std::uint32_t number, const SimulatedRank& rank) {
  return {{"rank", number},
          {"seconds",
           {{"open", rank.open},
            {"read", rank.read},
            {"host_to_device", rank.host_to_device},
            {"pack", rank.pack},
            {"exchange", rank.exchange}}},
          {"read_busy_seconds", rank.read_busy},
          {"read_bytes", rank.read_bytes},
          {"sent_bytes", rank.sent_bytes},
          {"received_bytes", rank.received_bytes}};
}

std::string json_result(const OnCluster& on, const Simulation& simulation) {
  Json json{{"world", on.plan.world()},
            {"replicas", on.plan.replicas()},
            {"assignment", name(on.plan.assignment())},
            {"window", on.plan.window()},
            {"waves", on.plan.waves()},
            {"tensor_bytes", on.plan.needed_bytes()},
            {"machine", on.cluster.machine.name},
            {"nodes", on.cluster.nodes},
            {"cached_share", on.cluster.cached_share},
            {"seconds", simulation.seconds},
            {"first_tensor_seconds", simulation.first_tensor_seconds},
            {"use", Json::object()},
            {"assumptions", assumptions_json(on.cluster.machine)},
            {"ranks", Json::array()}};
  for (const auto& [name, value] : shared) json["use"][name] = simulation.use.*value;
  std::uint32_t number = 0;
  for (const SimulatedRank& rank : simulation.ranks) {
    json["ranks"].push_back(rank_json(number++, rank));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Span::Track track_of(Step step) {
  if (step == Step::read) return Span::Track::posix;
  return step == Step::copy ? Span::Track::copies : Span::Track::phases;
}

// As the trace of a load: the reads as those of reader threads.
Report trace_report(const Simulation& simulation) {
  Report report;
  report.ranks.resize(simulation.ranks.size());
  for (std::uint32_t rank = 0; rank < report.ranks.size(); ++rank) report.ranks[rank].rank = rank;
  for (const SimulatedSpan& span : simulation.spans) {
    report.ranks[span.rank].spans.push_back({track_of(span.step),
                                             fmt::format("{} {}", name(span.step), span.wave),
                                             span.begin, span.end - span.begin});
  }
  return report;
}

void write_trace(const std::string& path, const Simulation& simulation) {
  check_output_name(path);
  core::AtomicFile file{std::filesystem::path(path)};
  const std::string text = to_trace_json(trace_report(simulation)) + "\n";
  file.write(0, std::as_bytes(std::span(text)));
  file.commit();
}

void simulate(const SimulateCommand& command) {
  const OnCluster on =
      plan_on_cluster(command.paths, command.world, command.machine, command.options);
  print_warnings(on.warnings);
  const Simulation simulation = safeshuffle::simulate(on.plan, on.cluster, !command.trace.empty());
  if (!command.trace.empty()) write_trace(command.trace, simulation);
  print_result(command.json ? json_result(on, simulation) : text_result(on, simulation));
}

}  // namespace

Command add_simulate(CLI::App& parser) {
  const auto command = std::make_shared<SimulateCommand>();
  CLI::App* sub = parser.add_subcommand(
      "simulate", "Replay a load event by event on a machine that you need not have");
  sub->add_option("MODEL", command->paths, "A directory, an .index.json, or .safetensors files")
      ->required();
  add_world(*sub, command->world);
  sub->add_flag("--json", command->json, "Print JSON");
  sub->add_option("--trace", command->trace,
                  "Write a timeline of what works when, for chrome://tracing or Perfetto")
      ->type_name("FILE");
  add_machine_options(*sub, command->machine);
  add_plan_options(*sub, command->options);
  return [command] { simulate(*command); };
}

}  // namespace safeshuffle::app
