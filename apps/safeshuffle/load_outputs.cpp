#include "load_outputs.hpp"

#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "comm/control/agreement.hpp"
#include "core/new_files.hpp"

namespace safeshuffle::app {
namespace {

namespace fs = std::filesystem;

// Where a file with this path is or would be, with links in its directory's path resolved.
fs::path place_of(const fs::path& path) {
  std::error_code ignored;
  return fs::weakly_canonical(core::directory_of(path), ignored) / path.filename();
}

// True also if one is a link to the other.
bool is_same_file(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  return fs::equivalent(a, b, ignored) || place_of(a) == place_of(b);
}

// A file that is read or will be written, and its purpose.
struct Use {
  fs::path path;
  std::string purpose;
};

void claim(const std::string& path, const std::string& purpose, std::vector<Use>& uses) {
  if (path.empty()) return;
  for (const Use& use : uses) {
    if (!is_same_file(path, use.path)) continue;
    throw ConfigError(
        ErrorRecord{.file = path, .cause = purpose + " would replace " + use.purpose});
  }
  uses.push_back({path, purpose});
}

// A symbolic link would be replaced instead of its target; a file with the name of a checkpoint's
// would be loaded as part of it.
void check_output_name(const fs::path& path) {
  std::error_code ignored;
  const std::string name = path.filename().string();
  std::string cause;
  if (fs::is_symlink(fs::symlink_status(path, ignored))) {
    cause = "is a symbolic link; pass the path of the file itself";
  } else if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) {
    cause = "has the name of a checkpoint file; choose another name";
  }
  if (!cause.empty()) throw ConfigError(ErrorRecord{.file = path.string(), .cause = cause});
}

void check_distinct(const OutputPaths& paths, const PlannedLoad& planned) {
  std::vector<Use> uses;
  for (const std::string& input : planned.inputs()) {
    uses.push_back({input, "a file that the load reads"});
  }
  if (!paths.shards.empty()) {
    for (std::uint32_t rank = 0; rank < planned.plan().replica_size(); ++rank) {
      uses.push_back({ShardedOutput::file_of(paths.shards, rank), "a file of --save-sharded"});
    }
  }
  claim(paths.report, "--report", uses);
  claim(paths.trace, "--trace", uses);
  check_output_name(paths.report);
  check_output_name(paths.trace);
}

void create(const std::string& path, std::unique_ptr<core::NewFile>& file) {
  if (!path.empty()) file = std::make_unique<core::NewFile>(path);
}

void write_text(core::NewFile& file, const std::string& text) {
  file.content().write(0, std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace

LoadOutputs::LoadOutputs(const OutputPaths& paths, const PlannedLoad& planned,
                         const Communicator& comm, const Options& options)
    : comm_(comm), options_(options) {
  const auto agree_on_rank_0 = [&](const auto& step) {
    comm::agree_on(comm.control(), options.timeout, [&]() -> std::string {
      if (comm.rank() == 0) step();
      return {};
    });
  };
  agree_on_rank_0([&] { check_distinct(paths, planned); });
  if (!paths.shards.empty()) shards_.emplace(paths.shards, planned.plan(), comm, options);
  agree_on_rank_0([&] {
    create(paths.report, report_);
    create(paths.trace, trace_);
  });
}

void LoadOutputs::write(const TensorSet& model, const Report& report) {
  if (shards_) shards_->write(model);
  comm::agree_on(comm_.control(), options_.timeout, [&]() -> std::string {
    if (report_) write_text(*report_, to_json(report) + "\n");
    if (trace_) write_text(*trace_, to_trace_json(report) + "\n");
    return {};
  });
}

}  // namespace safeshuffle::app
