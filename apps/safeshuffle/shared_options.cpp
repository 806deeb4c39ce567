#include "shared_options.hpp"

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "safeshuffle/error.hpp"

#include "option.hpp"
#include "size.hpp"

namespace safeshuffle::app {
namespace {

Choices<Assignment> assignments() {
  Choices<Assignment> choices;
  for (const Assignment assignment :
       {Assignment::automatic, Assignment::round_robin, Assignment::balanced, Assignment::striped,
        Assignment::sliced, Assignment::mixed}) {
    choices.emplace_back(name(assignment), assignment);
  }
  return choices;
}

// One pattern each time it is given: what follows may be the MODEL.
void add_patterns(CLI::App& parser, const std::string& name, std::vector<std::string>& patterns,
                  const std::string& help) {
  parser.add_option(name, patterns, help)->type_name("GLOB")->allow_extra_args(false);
}

// "1/4": a whole number on either side.
std::optional<PipelineStage> parse_stage(std::string_view text) {
  const char* const end = text.data() + text.size();
  PipelineStage stage;
  const auto index = std::from_chars(text.data(), end, stage.index);
  if (index.ec != std::errc() || index.ptr == end || *index.ptr != '/') return std::nullopt;
  const auto count = std::from_chars(index.ptr + 1, end, stage.count);
  if (count.ec != std::errc() || count.ptr != end) return std::nullopt;
  return stage.index < stage.count ? std::optional(stage) : std::nullopt;
}

void add_pipeline_stage(CLI::App& parser, std::optional<PipelineStage>& stage) {
  const std::string name = "--pipeline-stage";
  const auto set = [&stage, name](const std::string& text) {
    stage = parse_stage(text);
    if (stage) return;
    throw CLI::ValidationError(
        name, "'" + text + "' is not a stage I/N: 0/4 is the first of four, 3/4 the last");
  };
  parser
      .add_option_function<std::string>(name, set,
                                        "Load only stage I, counted from 0, of N pipeline stages")
      ->type_name("I/N");
}

}  // namespace

void add_dtype(CLI::App& parser, DTypePolicy& dtype, const std::string& help) {
  add_choice<DTypePolicy>(parser, "--dtype", "TYPE", dtype,
                          {{"keep", DTypePolicy::keep},
                           {"f16", DTypePolicy::f16},
                           {"bf16", DTypePolicy::bf16},
                           {"f32", DTypePolicy::f32}},
                          help);
}

CLI::Option* add_tp_plan(CLI::App& parser, std::string& tp_plan) {
  return parser
      .add_option("--tp-plan", tp_plan,
                  "Placement rules: auto (by config.json), replicate, or a rule file")
      ->type_name("RULES")
      ->capture_default_str();
}

void add_remote(CLI::App& parser, RemoteOptions& remote) {
  parser
      .add_option("--header", remote.headers,
                  "Sent with every request where MODEL is a URL, such as 'Authorization: …'; "
                  "repeatable")
      ->type_name("'NAME: VALUE'")
      ->allow_extra_args(false);
  parser
      .add_option("--source", remote.sources,
                  "Another place of the same files, a URL or a directory, for what cannot be had "
                  "from MODEL; repeatable")
      ->type_name("PLACE")
      ->allow_extra_args(false);
}

void add_cache(CLI::App& parser, RemoteOptions& remote) {
  parser
      .add_option("--cache", remote.cache,
                  "Keep what is fetched in this directory, and load from there what it has")
      ->type_name("DIR");
  add_size(parser, "--cache-size", remote.cache_bytes,
           "Remove the files from it that were used longest ago until it has no more than this");
}

void add_plan_options(CLI::App& parser, Options& options) {
  add_remote(parser, options.remote);
  add_tp_plan(parser, options.tp_plan);
  add_choice<ExpertPlacement>(
      parser, "--experts", "HOW", options.experts,
      {{"cut", ExpertPlacement::cut}, {"parallel", ExpertPlacement::parallel}},
      "Whether experts are split, or whole experts dealt to ranks");
  add_patterns(parser, "--only", options.selection.only,
               "Load only tensors whose names match, such as 'model.layers.0.*'; repeatable");
  add_patterns(parser, "--skip", options.selection.skip,
               "Leave out tensors whose names match; repeatable");
  add_pipeline_stage(parser, options.selection.stage);
  add_dtype(parser, options.plan.dtype, "Convert F16, BF16 and F32 tensors");
  add_patterns(parser, "--keep-dtype", options.plan.keep_dtype,
               "Do not convert tensors whose names match; repeatable");
  add_count(parser, "--replicas", "D", options.plan.replicas, most_ranks,
            "Load D copies, each on a D-th of the ranks, reading files once for all")
      ->default_str(std::to_string(options.plan.replicas));
  add_choice(parser, "--assign", "MODE", options.plan.assignment, assignments(),
             "Which rank reads which files");
  add_choice<Order>(parser, "--order", "ORDER", options.plan.order,
                    {{"file", Order::file}, {"layer", Order::layer}},
                    "In which order tensors are read: as they lie in the files, or layer by layer");
  add_size(parser, "--window", options.plan.window, "File bytes that a rank reads per wave")
      ->default_str(default_text(&core::Defaults::window));
  add_size(parser, "--memory-budget", options.plan.memory_budget,
           "Maximum device memory per rank; the window shrinks to fit")
      ->default_str("no limit");
}

void add_device(CLI::App& parser, Device& device, const std::string& help) {
  add_choice<DeviceKind>(
      parser, "--device", "DEVICE", device.kind,
      {{"auto", DeviceKind::automatic}, {"cuda", DeviceKind::cuda}, {"host", DeviceKind::host}},
      help + "; auto: GPUs, if every rank has one");
  parser
      .add_option("--gpu", device.ordinal,
                  "CUDA ordinal of the GPU among those visible to the process; the same for every "
                  "rank")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber.description(""))
      ->default_str("by the rank's position on its node");
}

void check_device(const Device& device) {
  if (device.kind != DeviceKind::host || device.ordinal == Device::by_local_rank) return;
  throw ConfigError("--gpu cannot be used with --device host");
}

void add_timeout(CLI::App& parser, double& seconds, double least) {
  parser
      .add_option("--timeout", seconds,
                  "How long a rank may go without progress before it is considered lost")
      ->type_name("SECONDS")
      ->check(CLI::Range(least, 1e6).description(""))
      ->capture_default_str();
}

void add_progress(CLI::App& parser, ProgressStyle& style) {
  add_choice<ProgressStyle>(parser, "--progress", "STYLE", style,
                            {{"auto", ProgressStyle::automatic}, {"none", ProgressStyle::none}},
                            "Format of progress");
}

std::string default_text(std::uint64_t core::Defaults::*bytes) {
  return fmt::format("{}, on GPUs {}", format_binary_size(core::host_defaults.*bytes),
                     format_binary_size(core::gpu_defaults.*bytes));
}

}  // namespace safeshuffle::app
