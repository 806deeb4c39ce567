#include "load_outputs.hpp"

#include <filesystem>
#include <set>
#include <span>
#include <string>

#include "comm/control/agreement.hpp"
#include "core/new_files.hpp"
#include "source/select.hpp"

namespace safeshuffle::app {
namespace {

namespace fs = std::filesystem;

// The path of the file to which `path` leads, under whatever name.
fs::path place_of(const std::string& path) {
  return fs::weakly_canonical(fs::absolute(path));
}

// A file with the name of a checkpoint's, such as one of --save-sharded, would be loaded as part of
// it.
bool has_name_of_checkpoint_file(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
}

void check_reports(const OutputPaths& paths, const std::vector<std::string>& inputs) {
  std::set<fs::path> taken;
  for (const std::string& input : inputs) taken.insert(place_of(input));
  for (const std::string& path : {paths.report, paths.trace}) {
    if (path.empty()) continue;
    const fs::path place = place_of(path);
    const bool is_named_so =
        has_name_of_checkpoint_file(path) || has_name_of_checkpoint_file(place);
    if (!is_named_so && taken.insert(place).second) continue;
    throw ConfigError(ErrorRecord{
        .file = path,
        .cause = "is read by this load, is another of its outputs, or has the name of a checkpoint "
                 "file; choose another path"});
  }
}

// Through symbolic links, which are not replaced.
void create(const std::string& path, std::unique_ptr<core::NewFile>& file) {
  if (!path.empty()) file = std::make_unique<core::NewFile>(place_of(path).string());
}

void write_text(core::NewFile& file, const std::string& text) {
  file.content().write(0, std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace

LoadOutputs::LoadOutputs(const OutputPaths& paths, const std::vector<std::string>& inputs,
                         const Plan& plan, const Communicator& comm, const Options& options)
    : comm_(comm), options_(options) {
  const auto agree_on_rank_0 = [&](const auto& step) {
    comm::agree_on(comm.control(), options.timeout, [&]() -> std::string {
      if (comm.rank() == 0) step();
      return {};
    });
  };
  agree_on_rank_0([&] {
    for (const auto& path : {paths.shards, paths.report, paths.trace}) {
      source::refuse_to_write(path);
    }
    check_reports(paths, inputs);
  });
  if (!paths.shards.empty()) shards_.emplace(paths.shards, plan, comm, options);
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
