// safeshuffle load: the main job.
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "safeshuffle/loader.hpp"

#include "comm/agreement.hpp"
#include "commands.hpp"
#include "format/writer.hpp"
#include "launch.hpp"
#include "option_names.hpp"
#include "progress.hpp"
#include "size.hpp"
#include "summary.hpp"

namespace safeshuffle::app {
namespace {

struct LoadCommand {
  std::vector<std::string> paths;
  Options options;
  DeviceSpec device = DeviceSpec::host();
  double timeout_seconds = 300;
  bool verify = false;
  std::string save_directory;
  std::string report_file;
  std::string trace_file;
  ProgressStyle progress = ProgressStyle::automatic;
};

// Adds an option whose values have names.
template <class Value>
void add_choice(CLI::App& parser, const std::string& option, Value& value,
                const std::map<std::string, Value>& names, const std::string& fallback,
                const std::string& help) {
  std::vector<std::string> list;
  for (const auto& [name, unused] : names) list.push_back(name);
  parser.add_option(option, value, help)
      ->type_name(fmt::format("{}", fmt::join(list, "|")))
      ->transform(CLI::CheckedTransformer(names, CLI::ignore_case).description(""))
      ->default_str(fallback);
}

void add_io_options(CLI::App& parser, Options& options) {
  add_choice<IoEngine>(parser, "--io", options.io,
                       {{"auto", IoEngine::automatic}, {"posix", IoEngine::posix}}, "auto",
                       "Engine that reads files");
  add_choice<DirectIo>(
      parser, "--direct", options.direct,
      {{"auto", DirectIo::automatic}, {"on", DirectIo::on}, {"off", DirectIo::off}}, "auto",
      "Bypass the page cache");
  parser.add_option("--threads", options.threads, "Reader threads per rank (default: up to 4)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  add_size(parser, "--chunk", options.chunk, "Bytes per read call")->default_str("8MiB");
}

void add_output_options(CLI::App& parser, LoadCommand& command) {
  add_choice<bool>(parser, "--verify", command.verify, {{"none", false}, {"full", true}}, "none",
                   "Compare every loaded byte with the files, read again");
  parser
      .add_option("--save-sharded", command.save_directory,
                  "Save each rank's tensors as DIR/model-rank-{rank}-part-0.safetensors")
      ->type_name("DIR");
  parser.add_option("--report", command.report_file, "Write a JSON report")->type_name("FILE");
  parser
      .add_option("--trace", command.trace_file, "Write a trace for chrome://tracing or Perfetto")
      ->type_name("FILE");
  add_progress(parser, command.progress);
}

// Written by rank 0; the others learn whether it could.
void write_text(const Communicator& comm, const Options& options, const std::string& file,
                const std::string& text) {
  if (file.empty()) return;
  comm::agree_on(comm.transport(), core::Deadline(options.timeout), [&]() -> std::string {
    if (comm.rank() != 0) return {};
    format::FileWriter writer(file, {text + "\n", {}, text.size() + 1});
    writer.flush();
    writer.commit();
    return {};
  });
}

void print(const Communicator& comm, const std::string& text) {
  if (comm.rank() == 0) fmt::print("{}", text);
}

TensorSet load_with_progress(LoadCommand& command, const Communicator& comm) {
  ProgressPrinter printer(command.progress, "loading");
  command.options.on_progress = [&printer](const Progress& progress) {
    printer.update(progress.bytes, progress.total_bytes);
  };
  TensorSet model = safeshuffle::load(command.paths, comm, command.options);
  printer.finish();
  return model;
}

std::string verification_line(const std::vector<double>& seconds) {
  return fmt::format("verified: every byte on every rank equals the files ({:.3f} s)\n",
                     *std::max_element(seconds.begin(), seconds.end()));
}

void load(LoadCommand& command) {
  command.options.timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(command.timeout_seconds * 1000));
  command.options.trace = !command.trace_file.empty();
  const Communicator comm = join_group(command.device);
  const TensorSet model = load_with_progress(command, comm);
  Report report = model.report();
  std::string closing;
  if (command.verify) {
    const std::vector<double> seconds = verify(model, comm, command.options);
    add_verification(report, seconds);
    closing += verification_line(seconds);
  }
  if (!command.save_directory.empty()) {
    save_sharded(model, command.save_directory, comm, command.options);
    closing += fmt::format("saved {} files in {}\n", comm.size(), command.save_directory);
  }
  write_text(comm, command.options, command.report_file, to_json(report));
  write_text(comm, command.options, command.trace_file, to_trace_json(report));
  print(comm, summary(report) + closing);
}

}  // namespace

Command add_load(CLI::App& parser) {
  const auto command = std::make_shared<LoadCommand>();
  CLI::App* sub = parser.add_subcommand("load", "Load a checkpoint; run under mpirun for a group");
  sub->add_option("MODEL", command->paths, "A directory, an index, or .safetensors files")
      ->required();
  add_plan_options(*sub, command->options);
  add_choice<DeviceKind>(*sub, "--device", command->device.kind,
                         {{"auto", DeviceKind::host}, {"host", DeviceKind::host}}, "auto",
                         "Where tensors end up");
  add_io_options(*sub, command->options);
  add_output_options(*sub, *command);
  sub->add_option("--timeout", command->timeout_seconds,
                  "Seconds without progress before a peer counts as lost")
      ->type_name("SECONDS")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
  sub->add_flag("--strict", command->options.strict, "Fail instead of falling back");
  return [command] { load(*command); };
}

}  // namespace safeshuffle::app
