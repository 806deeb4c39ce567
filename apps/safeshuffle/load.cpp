// safeshuffle load: the main job.
#include <algorithm>
#include <chrono>
#include <functional>
#include <malloc.h>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "safeshuffle/loader.hpp"
#include "safeshuffle/probe.hpp"
#include "safeshuffle/session.hpp"

#include "comm/control/agreement.hpp"
#include "commands.hpp"
#include "core/deadline.hpp"
#include "core/defaults.hpp"
#include "core/wire.hpp"
#include "interrupt.hpp"
#include "launch.hpp"
#include "load_outputs.hpp"
#include "option.hpp"
#include "output.hpp"
#include "progress.hpp"
#include "shared_options.hpp"
#include "size.hpp"
#include "summary.hpp"

namespace safeshuffle::app {
namespace {

struct LoadCommand {
  std::vector<std::string> paths;
  Options options;
  Device device = Device::automatic();
  double timeout_seconds = 300;
  bool verify = false;
  std::uint64_t stream = 0;  // bytes of a group; 0: all at once
  OutputPaths outputs;
  ProgressStyle progress = ProgressStyle::automatic;
};

std::string default_threads_text() {
  return fmt::format("{}, on GPUs {} to {} by cores", core::host_defaults.most_threads,
                     core::gpu_defaults.least_threads, core::gpu_defaults.most_threads);
}

void add_io_options(CLI::App& parser, Options& options) {
  add_choice<IoEngine>(parser, "--io", "ENGINE", options.io,
                       {{"auto", IoEngine::automatic},
                        {"posix", IoEngine::posix},
                        {"uring", IoEngine::uring},
                        {"gds", IoEngine::gds}},
                       "I/O engine");
  add_choice<DirectIo>(
      parser, "--direct", "MODE", options.direct,
      {{"auto", DirectIo::automatic}, {"on", DirectIo::on}, {"off", DirectIo::off}},
      "Whether to bypass the page cache (O_DIRECT)");
  parser.add_flag("--drop-cache-behind", options.drop_cache_behind,
                  "Drop from the page cache what the load has read");
  add_count(parser, "--threads", "N", options.threads, core::most_reader_threads,
            "Reader threads per rank")
      ->default_str(default_threads_text());
  add_size(parser, "--chunk", options.chunk, "Bytes per read call")
      ->default_str(default_text(&core::Defaults::chunk));
}

void add_output_options(CLI::App& parser, LoadCommand& command) {
  add_choice<bool>(parser, "--verify", "HOW", command.verify, {{"none", false}, {"full", true}},
                   "Compare every loaded byte with the files, which are read again");
  parser
      .add_option("--save-sharded", command.outputs.shards,
                  "Save the tensors of rank R as DIR/model-rank-R-part-0.safetensors")
      ->type_name("DIR");
  parser.add_option("--report", command.outputs.report, "Write the load report as JSON")
      ->type_name("FILE");
  parser
      .add_option("--trace", command.outputs.trace,
                  "Write a timeline of what works when, for chrome://tracing or Perfetto")
      ->type_name("FILE");
  add_choice<ProgressStyle>(parser, "--progress", "STYLE", command.progress,
                            {{"auto", ProgressStyle::automatic},
                             {"none", ProgressStyle::none},
                             {"json", ProgressStyle::json}},
                            "Format of progress and results");
}

// Calls work(options) with options that show its progress.
template <class Work>
auto with_progress(const LoadCommand& command, const std::string& activity, const Work& work) {
  ProgressPrinter printer(command.progress, activity);
  Options options = command.options;
  options.on_progress = [&printer](const Progress& progress) {
    printer.update(progress.bytes, progress.total_bytes);
  };
  return work(options);
}

double verify_seconds(const Report& report) {
  double slowest = 0;
  for (const RankReport& rank : report.ranks) {
    slowest = std::max(slowest, rank.phases[static_cast<std::size_t>(Phase::verify)]);
  }
  return slowest;
}

std::string text_result(const LoadCommand& command, const Report& report) {
  std::string text = summary(report);
  if (command.verify) {
    text += fmt::format("verified: every byte on every rank equals the files ({:.3f} s)\n",
                        verify_seconds(report));
  }
  if (!command.outputs.shards.empty()) {
    const std::size_t files = report.ranks.size() / report.replicas;
    text += fmt::format("saved {} in {}\n", count(files, "file"), command.outputs.shards);
  }
  return text;
}

// The last line for programs, printed only on success.
std::string json_result(const LoadCommand& command, const Report& report) {
  nlohmann::ordered_json json{
      {"event", "done"}, {"activity", "loading"}, {"verified", command.verify}};
  if (!command.outputs.shards.empty()) json["saved"] = command.outputs.shards;
  json["report"] = nlohmann::ordered_json::parse(to_json(report));
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// What was measured here before, if anything. Collective, but only rank 0 looks: it alone writes
// and prints the report, and its costs decide.
std::optional<KeptProbe> find_kept_probe(const LoadCommand& command, const Communicator& comm) {
  const ProbePlace place = place_of(comm, command.paths.front(), command.options.timeout);
  const std::string directory = probe_directory();
  if (comm.rank() != 0 || directory.empty()) return {};
  try {
    return find_probe(place, directory);
  } catch (const Error& error) {
    print_warnings({"the kept probe is not used: " + describe(error.record())});
    return {};
  }
}

// Rank 0 prints; the others learn whether it succeeded.
void print_together(const Communicator& comm, const Options& options,
                    const std::function<std::string()>& text) {
  comm::agree_on(comm.control(), options.timeout, [&]() -> std::string {
    if (comm.rank() == 0) print_result(text());
    return {};
  });
}

// The options that decide which collective steps follow, and where results are written. The plan
// covers all others that must be the same.
std::string common_steps(const LoadCommand& command) {
  return core::WireWriter()
      .put(command.outputs.shards)
      .put(command.outputs.report)
      .put(command.outputs.trace)
      .put(std::uint64_t{command.verify})
      .put(command.stream)
      .take();
}

void compare_steps(const LoadCommand& command, const Communicator& comm) {
  const auto steps =
      comm::agree(comm.control(), common_steps(command), {}, command.options.timeout);
  for (std::size_t rank = 0; rank < steps.size(); ++rank) {
    if (steps[rank] == steps.front()) continue;
    throw ConfigError(ErrorRecord{
        .rank = static_cast<std::int32_t>(rank),
        .cause = "was given different options from rank 0: --verify, --stream, --save-sharded, "
                 "--report and --trace must be the same for all ranks"});
  }
}

// What a stream has come to.
struct Streamed {
  std::uint64_t groups = 0;
  std::uint64_t bytes = 0;
  double first_seconds = 0;
  double seconds = 0;
};

// Keeps no group.
Streamed stream_all(const LoadCommand& command, const Communicator& comm, const Options& options) {
  const core::Clock::time_point start = core::Clock::now();
  Session session(command.paths, comm, options);
  if (comm.rank() == 0) print_warnings(session.warnings());
  Stream stream = session.stream(options.selection, {.group_bytes = command.stream, .alive = 1});
  Streamed all;
  for (auto group = stream.next(); group; group.reset(), group = stream.next()) {
    if (all.groups++ == 0) all.first_seconds = core::seconds_since(start);
    all.bytes += group->report().tensor_bytes;
    if (command.verify) verify(*group, comm, command.options);
  }
  all.seconds = core::seconds_since(start);
  return all;
}

std::string stream_result(const LoadCommand& command, const Streamed& all) {
  if (command.progress == ProgressStyle::json) {
    return nlohmann::ordered_json{{"event", "done"},
                                  {"activity", "streaming"},
                                  {"verified", command.verify},
                                  {"groups", all.groups},
                                  {"tensor_bytes", all.bytes},
                                  {"first_group_seconds", all.first_seconds},
                                  {"seconds", all.seconds}}
               .dump() +
           "\n";
  }
  return fmt::format("streamed {} in {} of at most {}{} in {:.3f} s; the first after {:.3f} s\n",
                     format_size(all.bytes), count(all.groups, "group"),
                     format_binary_size(command.stream), command.verify ? ", verified," : "",
                     all.seconds, all.first_seconds);
}

void check_stream(const LoadCommand& command) {
  const OutputPaths& outputs = command.outputs;
  if (outputs.shards.empty() && outputs.report.empty() && outputs.trace.empty()) return;
  throw ConfigError("--stream keeps nothing that --save-sharded, --report or --trace could write");
}

void stream(const LoadCommand& command, const Communicator& comm) {
  comm::agree_on(comm.control(), command.options.timeout, [&]() -> std::string {
    check_stream(command);
    return {};
  });
  const Streamed all = with_progress(command, "streaming", [&](const Options& options) {
    return stream_all(command, comm, options);
  });
  print_together(comm, command.options, [&] { return stream_result(command, all); });
}

void load(LoadCommand& command) {
  check_device(command.device);
  command.options.timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(command.timeout_seconds * 1000));
  command.options.trace = !command.outputs.trace.empty();
  leave_default_binding();
  const Communicator comm = join_group(command.device, command.options.timeout);
  command.options.cancel = cancel_on_signals();
  compare_steps(command, comm);
  const std::optional<KeptProbe> probe = find_kept_probe(command, comm);
  if (probe) {
    command.options.plan.site.costs = probe->costs;
    command.options.plan.site.costs_origin = probe->path;
  }
  if (command.stream != 0) return stream(command, comm);
  std::optional<LoadOutputs> outputs;
  const TensorSet model = with_progress(command, "loading", [&](const Options& options) {
    Session session(command.paths, comm, options);
    PlannedLoad planned = session.plan();
    // The C library keeps what opening and planning have freed: tens of MiB with 100,000 tensors.
    ::malloc_trim(0);
    if (comm.rank() == 0) print_warnings(planned.warnings());
    outputs.emplace(command.outputs, session.inputs(), planned.plan(), comm, options);
    return planned.run();
  });
  Report report = model.report();
  if (probe) add_ceilings(report, *probe);
  if (command.verify) {
    add_verification(report, with_progress(command, "verifying", [&](const Options& options) {
                       return verify(model, comm, options);
                     }));
  }
  outputs->write(model, report);
  print_together(comm, command.options, [&] {
    return command.progress == ProgressStyle::json ? json_result(command, report)
                                                   : text_result(command, report);
  });
}

}  // namespace

void add_load(CLI::App& parser) {
  const auto command = std::make_shared<LoadCommand>();
  CLI::App* sub =
      parser.add_subcommand("load", "Load a checkpoint; under mpirun, all ranks together");
  sub->add_option("MODEL", command->paths,
                  "A directory, an .index.json, .safetensors files, or URLs")
      ->required();
  add_plan_options(*sub, command->options);
  add_cache(*sub, command->options.remote);
  add_device(*sub, command->device, "Where to load the tensors");
  add_io_options(*sub, command->options);
  add_output_options(*sub, *command);
  add_size(
      *sub, "--stream", command->stream,
      "Load groups of at most so many bytes of device memory, one after the other, in the order "
      "of the model's layers, and keep none")
      ->default_str("all at once");
  add_timeout(*sub, command->timeout_seconds);
  sub->add_flag("--strict", command->options.strict, "Fail instead of falling back");
  sub->callback([command] { load(*command); });
}

}  // namespace safeshuffle::app
