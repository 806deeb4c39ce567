#include "pipeline/open_session.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "safeshuffle/error.hpp"
#include "safeshuffle/loader.hpp"

#include "comm/collective_call.hpp"
#include "comm/exchange/transport.hpp"
#include "device/device.hpp"
#include "pipeline/sub_catalog.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::pipeline {
namespace {

// Fills in the site, and adds the memory of transport and packer to what the caller has reserved.
PlanOptions on_device(PlanOptions options, const Communicator& comm, const Site& site) {
  if (options.assignment == Assignment::automatic && !comm.transport().moves_data()) {
    options.assignment = Assignment::sliced;
  }
  options.site = site;
  options.reserved_bytes += comm.transport().device_bytes() + comm.device_handle()->packer_bytes();
  return options;
}

Opened open(const Workspace& workspace, const std::vector<std::string>& paths) {
  const Communicator& comm = workspace.comm();
  const Options& options = workspace.options();
  const comm::CollectiveCall call(comm, options.cancel);
  check_together("open", options, comm);
  return open_together(workspace.source(), paths, options, comm.device(), comm.control());
}

// Rank 0 has found the files, and each header was read by one rank, so all know the same of them.
std::string identity_of(const Catalog& catalog) {
  std::string text;
  for (const FileInfo& file : catalog.files()) {
    text += file.path + '\n' + std::to_string(file.size) + ' ' + std::to_string(file.modified_ns) +
            '\n';
  }
  return std::to_string(std::hash<std::string>{}(text));
}

}  // namespace

OpenSession::OpenSession(std::shared_ptr<Workspace> workspace,
                         const std::vector<std::string>& paths)
    : workspace_(std::move(workspace)),
      opening_(PhaseClock(Phase::open, options().trace)),
      opened_(open(*workspace_, paths)),
      warnings_(open_warnings(opened_.checkpoint, opened_.tp_plan, options(), world())),
      identity_(identity_of(catalog())) {
  opening_->pause();
}

std::shared_ptr<OpenSession> OpenSession::reopened(const std::vector<std::string>& paths) const {
  return std::make_shared<OpenSession>(workspace_, paths);
}

std::unique_ptr<LoadJob> OpenSession::plan(const Selection& selection) {
  const Communicator& comm = workspace_->comm();
  Options options = workspace_->options();
  const comm::CollectiveCall call(comm, options.cancel);
  options.selection = selection;
  PhaseClock clock =
      opening_ ? *std::exchange(opening_, {}) : PhaseClock(Phase::plan, options.trace);
  clock.resume();
  const auto make = [&] {
    return plan(opened_.checkpoint.catalog,
                select_targets(opened_.checkpoint, opened_.tp_plan, options, comm.size()));
  };
  return std::make_unique<LoadJob>(
      workspace_, make, Origin{"load", identity_, warnings_, opened_.cached_share, selection.stage},
      std::move(clock));
}

void OpenSession::together(const std::string& function, const std::function<std::string()>& step) {
  const comm::CollectiveCall call(workspace_->comm(), options().cancel);
  const auto results = agree_on_call(function, workspace_->comm(), options(),
                                     [&] { return step() + ' ' + identity_; });
  if (std::ranges::all_of(results, [&](const auto& result) { return result == results.front(); }))
    return;
  throw PlanError(function +
                  " was called with different arguments on the ranks, or of different sessions");
}

std::vector<Target> OpenSession::in_model_order(const Selection& selection) const {
  Options chosen = options();
  chosen.selection = selection;
  std::vector<Target> targets =
      select_targets(opened_.checkpoint, opened_.tp_plan, chosen, workspace_->comm().size());
  std::erase_if(targets, [](const Target& target) {
    return target.placement.kind == Placement::Kind::dropped;
  });
  PlanOptions plain;
  plain.replicas = options().plan.replicas;
  const Plan whole = make_plan(catalog(), targets, world(), plain);
  const auto place = [&](const Target& target) {
    std::uint32_t depth = 0;
    const std::set<std::uint32_t> tensors = tensors_of(target);
    for (const std::uint32_t tensor : tensors) {
      depth = std::max(depth, whole.schedule().layers.depth[tensor]);
    }
    return std::pair(depth, *tensors.begin());
  };
  std::ranges::stable_sort(targets, {}, place);
  return targets;
}

std::unique_ptr<LoadJob> OpenSession::plan_group(const std::string& function,
                                                 const std::vector<Target>& group,
                                                 std::uint64_t beside, const Progress& progress) {
  const comm::CollectiveCall call(workspace_->comm(), options().cancel);
  const auto make = [&] {
    const std::set<std::uint32_t> chosen = tensors_of(group);
    std::vector<Target> targets;
    for (const Target& target : group) targets.push_back(renumbered(target, chosen));
    return plan(only(catalog(), chosen), std::move(targets), beside);
  };
  Origin origin{function, identity_};
  origin.progress = progress;
  return std::make_unique<LoadJob>(workspace_, make, std::move(origin),
                                   PhaseClock(Phase::plan, options().trace));
}

Plan OpenSession::plan(const Catalog& catalog, std::vector<Target> targets,
                       std::uint64_t beside) const {
  const Communicator& comm = workspace_->comm();
  PlanOptions options = on_device(workspace_->options().plan, comm, opened_.site);
  options.reserved_bytes += beside;
  return make_plan(catalog, std::move(targets), comm.size(), options);
}

}  // namespace safeshuffle::pipeline
