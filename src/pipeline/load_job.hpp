// The whole load.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "safeshuffle/communicator.hpp"
#include "safeshuffle/options.hpp"
#include "safeshuffle/plan.hpp"
#include "safeshuffle/tensor.hpp"

#include "pipeline/phase_clock.hpp"
#include "source/source.hpp"

namespace safeshuffle::pipeline {

/// One load of one rank, like PlannedLoad (loader.hpp), from any source, which must outlive the
/// process's reads.
class LoadJob {
 public:
  /// Opens the checkpoint, plans, and compares the plans of all ranks. Collective.
  LoadJob(const source::Source& source, const std::vector<std::string>& paths,
          const Communicator& comm, const Options& options);

  /// Uses an existing plan. Compares the plans of all ranks. Collective.
  LoadJob(const source::Source& source, const Plan& plan, const Communicator& comm,
          const Options& options);

  const Plan& plan() const noexcept { return *plan_; }
  const std::vector<std::string>& inputs() const noexcept { return inputs_; }
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

  /// Loads. Collective; once.
  TensorSet run();

 private:
  LoadJob(const source::Source& source, const Communicator& comm, const Options& options);

  void agree();

  const source::Source& source_;
  Communicator comm_;
  Options options_;
  PhaseClock clock_;
  std::optional<Plan> plan_;
  std::vector<std::string> inputs_;
  std::vector<std::string> warnings_;
  std::optional<double> cached_share_;
  unsigned sharers_ = 1;
  bool ran_ = false;
};

}  // namespace safeshuffle::pipeline
