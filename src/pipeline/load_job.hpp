// One load of one rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "safeshuffle/communicator.hpp"
#include "safeshuffle/options.hpp"
#include "safeshuffle/plan.hpp"
#include "safeshuffle/selection.hpp"
#include "safeshuffle/tensor.hpp"

#include "pipeline/phase_clock.hpp"
#include "pipeline/workspace.hpp"
#include "plan/lent_memory.hpp"
#include "source/source.hpp"

namespace safeshuffle::pipeline {

class Executor;

/// Where a plan comes from.
struct Origin {
  std::string call;             ///< name of the function that loads
  std::string checkpoint = {};  ///< of a session: the same on ranks that have opened the same
  std::vector<std::string> warnings = {};
  std::optional<double> cached_share = {};
  std::optional<PipelineStage> stage = {};
  Progress progress = {};  ///< of a part of a load: bytes before it, and of all; else nothing
};

/// Behind PlannedLoad (session.hpp).
class LoadJob {
 public:
  /// Plans, and compares the plans of all ranks. To be called within a collective call. `clock`
  /// runs; it is paused until `run`. `lent`: what the plan fills of this rank; else null.
  LoadJob(std::shared_ptr<Workspace> workspace, const std::function<Plan()>& make, Origin origin,
          PhaseClock clock, std::shared_ptr<const plan::LentMemory> lent = nullptr);

  const Plan& plan() const noexcept { return *plan_; }
  const std::vector<std::string>& warnings() const noexcept { return origin_.warnings; }

  LoadJob(const LoadJob&) = delete;
  LoadJob& operator=(const LoadJob&) = delete;
  ~LoadJob();

  /// Allocates, and begins to read, ahead of `run`. From now on, until this has run or is
  /// destroyed, the workspace is in use. Collective; at most once.
  void start();

  /// All ranks are about to run the same load. Collective.
  void run_together() const;

  /// Loads. Collective; once.
  TensorSet run();

 private:
  template <class Step>
  void or_release(const Step& step);
  void begin(std::uint32_t waves);
  void make_tensors();
  void end() noexcept;
  TensorSet finish();

  std::shared_ptr<Workspace> workspace_;
  std::optional<Plan> plan_;
  std::shared_ptr<const plan::LentMemory> lent_;
  Origin origin_;
  PhaseClock clock_;
  unsigned sharers_ = 1;
  // From `start` to the end of `run`.
  bool has_workspace_ = false;
  std::unique_ptr<Executor> executor_;
  std::shared_ptr<TensorSet::State> tensors_;
  bool has_begun_ = false;
};

/// A load by an existing plan, as `load` (loader.hpp), from any source, which must outlive the
/// process' reads. Collective.
std::unique_ptr<LoadJob> planned_load(std::shared_ptr<const source::Source> source,
                                      const Plan& plan, const Communicator& comm,
                                      const Options& options);

/// comm::agree_on_computation, at the beginning of a call of a session: throws ConfigError if ranks
/// have not called the same.
std::vector<std::string> agree_on_call(const std::string& call, const Communicator& comm,
                                       const Options& options,
                                       const std::function<std::string()>& computation);

/// At the beginning of a call: agree_on_call, and throws ConfigError on all ranks if an option of
/// any rank is wrong. Collective.
void check_together(const std::string& call, const Options& options, const Communicator& comm);

}  // namespace safeshuffle::pipeline
