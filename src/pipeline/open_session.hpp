// An opened checkpoint, and the loads from it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "safeshuffle/binding.hpp"
#include "safeshuffle/communicator.hpp"
#include "safeshuffle/metadata.hpp"
#include "safeshuffle/options.hpp"
#include "safeshuffle/report.hpp"
#include "safeshuffle/selection.hpp"
#include "safeshuffle/session.hpp"
#include "safeshuffle/target.hpp"
#include "safeshuffle/tensor.hpp"

#include "pipeline/load_job.hpp"
#include "pipeline/open.hpp"
#include "pipeline/phase_clock.hpp"
#include "pipeline/workspace.hpp"
#include "source/source.hpp"

namespace safeshuffle::pipeline {

/// Behind Session (safeshuffle/session.hpp). Construction, `plan` and `fetch` are collective.
class OpenSession {
 public:
  OpenSession(std::shared_ptr<Workspace> workspace, const std::vector<std::string>& paths);

  /// Another checkpoint, with the buffers of this one. Collective.
  std::shared_ptr<OpenSession> reopened(const std::vector<std::string>& paths) const;

  const Catalog& catalog() const noexcept { return opened_.checkpoint.catalog; }
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }
  const std::vector<std::string>& inputs() const noexcept { return opened_.inputs; }
  const Options& options() const noexcept { return workspace_->options(); }

  std::unique_ptr<LoadJob> plan(const Selection& selection);

  /// For this function of a Session, with its arguments but the names: loads one target, made of
  /// these stored tensors. They are those of the catalog that `target` is given.
  TensorSet fetch(const std::string& function, const std::vector<std::string>& names,
                  const std::function<Target(const Catalog&)>& target);

  /// The targets of a selection, less those that no rank has, in the order of the model's layers.
  std::vector<Target> in_model_order(const Selection& selection) const;

  /// A load of some targets of this catalog. `beside`: as of `plan`. `progress`: see Origin.
  std::unique_ptr<LoadJob> plan_group(const std::string& function, const std::vector<Target>& group,
                                      std::uint64_t beside, const Progress& progress);

  /// Collective: a step of this function of a Session that all ranks take, or none. Throws
  /// PlanError if it does not return the same on all.
  void together(const std::string& function, const std::function<std::string()>& step);

  std::uint32_t world() const noexcept { return workspace_->comm().size(); }

  /// Session::load_into.
  Report load_into(std::span<const Binding> bindings, std::shared_ptr<void> owner);
  Report load_into(std::span<const Parameter> parameters, std::shared_ptr<void> owner);

  /// Session::get_slice.
  TensorSet get_slice(const std::string& name, const std::vector<Interval>& ranges);

 private:
  std::unique_ptr<LoadJob> bind(const std::function<std::vector<Binding>()>& bindings,
                                std::shared_ptr<void> owner);
  /// `beside`: what the load takes of the budget besides what is planned.
  Plan plan(const Catalog& catalog, std::vector<Target> targets, std::uint64_t beside = 0) const;

  std::shared_ptr<Workspace> workspace_;
  std::optional<PhaseClock> opening_;  // until the first plan: its load tells how long this took
  Opened opened_;
  std::vector<std::string> warnings_;
  std::string identity_;  // the same on ranks that have opened the same checkpoint
};

}  // namespace safeshuffle::pipeline
