#include "pipeline/load_job.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/collective_call.hpp"
#include "comm/control/agreement.hpp"
#include "comm/exchange/transport.hpp"
#include "core/error_wire.hpp"
#include "core/wire.hpp"
#include "device/device.hpp"
#include "io/policy.hpp"
#include "pipeline/executor.hpp"
#include "pipeline/limits.hpp"
#include "pipeline/load_report.hpp"
#include "pipeline/phase_clock.hpp"
#include "pipeline/readiness.hpp"
#include "pipeline/report_wire.hpp"
#include "pipeline/tensor_state.hpp"
#include "plan/proof_destination.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::pipeline {
namespace {

// What a rank tells the others before it allocates anything.
struct Intent {
  std::uint64_t plan_hash = 0;
  std::string checkpoint;
  std::string cpus;  // of its readers: equal on ranks of one node that share them
};

auto fields(core::As<Intent> auto& intent) {
  return std::tie(intent.plan_hash, intent.checkpoint, intent.cpus);
}

// What a rank tells the others first.
struct Outcome {
  std::string call;
  std::string result;
};

auto fields(core::As<Outcome> auto& outcome) {
  return std::tie(outcome.call, outcome.result);
}

void check_exchanges(const Plan& plan, const Communicator& comm) {
  if (plan.schedule().exchanged_waves == 0 || comm.transport().moves_data()) return;
  throw ConfigError("with the assignment " + std::string(name(plan.assignment())) +
                    ", ranks send each other data, which those on the host can only over MPI: use "
                    "sliced (--assign sliced)");
}

// Every plan is proved before it is used.
void prove(const Plan& plan, const plan::LentMemory* lent, const Communicator& comm) {
  if (plan.world() != comm.size()) {
    throw ConfigError("the plan is for " + std::to_string(plan.world()) + " ranks, not " +
                      std::to_string(comm.size()));
  }
  check_exchanges(plan, comm);
  plan.prove();
  if (lent != nullptr) plan::prove_destinations(plan.schedule(), comm.rank(), *lent);
}

// Every rank sees all, so either all throw or none does.
void compare(const std::vector<Intent>& intents) {
  for (std::size_t rank = 0; rank < intents.size(); ++rank) {
    const auto fail = [&](const char* cause) {
      throw PlanError(ErrorRecord{.rank = static_cast<std::int32_t>(rank), .cause = cause});
    };
    if (intents[rank].checkpoint != intents.front().checkpoint) {
      fail("loads from another checkpoint than rank 0");
    }
    if (intents[rank].plan_hash != intents.front().plan_hash) {
      fail(
          "made a different plan from rank 0: do all ranks run the same program with the same "
          "options?");
    }
  }
}

std::vector<Intent> agree_on_plan(const std::string& call, const Communicator& comm,
                                  const Options& options, const std::function<Intent()>& intent) {
  std::vector<Intent> intents;
  for (const std::string& bytes :
       agree_on_call(call, comm, options, [&] { return core::to_wire(intent()); })) {
    intents.push_back(core::from_wire<Intent>(bytes));
  }
  compare(intents);
  return intents;
}

// How many ranks share the CPUs of this one's readers.
unsigned count_sharers(const std::vector<Intent>& intents, const Communicator& comm) {
  const std::string& mine = intents[comm.rank()].cpus;
  return static_cast<unsigned>(std::ranges::count(intents, mine, &Intent::cpus));
}

}  // namespace

LoadJob::LoadJob(std::shared_ptr<Workspace> workspace, const std::function<Plan()>& make,
                 Origin origin, PhaseClock clock, std::shared_ptr<const plan::LentMemory> lent)
    : workspace_(std::move(workspace)),
      lent_(std::move(lent)),
      origin_(std::move(origin)),
      clock_(std::move(clock)) {
  const Communicator& comm = workspace_->comm();
  const auto plan_and_prove = [&] {
    plan_ = make();
    prove(*plan_, lent_.get(), comm);
    return Intent{plan_->hash(), origin_.checkpoint, io::shared_cpus(comm.device())};
  };
  clock_.enter(Phase::plan);
  sharers_ =
      count_sharers(agree_on_plan(origin_.call, comm, workspace_->options(), plan_and_prove), comm);
  std::ranges::move(plan_->warnings(), std::back_inserter(origin_.warnings));
  clock_.pause();
}

LoadJob::~LoadJob() {
  end();
}

void LoadJob::end() noexcept {
  executor_.reset();
  if (std::exchange(has_workspace_, false)) workspace_->end_reservation();
}

void LoadJob::start() {
  const comm::CollectiveCall call(workspace_->comm(), workspace_->options().cancel);
  clock_.resume();
  or_release([&] { begin(plan::slabs_per_rank); });
  clock_.pause();
}

void LoadJob::run_together() const {
  const Communicator& comm = workspace_->comm();
  const comm::CollectiveCall call(comm, workspace_->options().cancel);
  agree_on_plan("run", comm, workspace_->options(), [&] {
    return Intent{plan_->hash(), origin_.checkpoint, {}};
  });
}

TensorSet LoadJob::run() {
  if (has_begun_ && !executor_) throw ConfigError("a planned load can run only once");
  const comm::CollectiveCall call(workspace_->comm(), workspace_->options().cancel);
  clock_.resume();
  std::optional<TensorSet> loaded;
  or_release([&] {
    // In layer order, somebody may be waiting for the first layer: nothing is read beside it.
    if (!executor_) begin(plan_->schedule().order == Order::layer ? 1 : plan::slabs_per_rank);
    loaded = finish();
  });
  end();
  return *loaded;
}

void LoadJob::begin(std::uint32_t waves) {
  const PhaseScope scope(clock_, Phase::allocate);
  const Communicator& comm = workspace_->comm();
  comm::agree_on(comm.control(), timeout_of(workspace_->options()), [&]() -> std::string {
    workspace_->reserve();
    has_workspace_ = true;
    executor_ = std::make_unique<Executor>(*workspace_, *plan_, lent_.get(), sharers_, clock_,
                                           origin_.progress);
    if (workspace_->options().on_ready) make_tensors();
    return {};
  });
  has_begun_ = true;
  executor_->start(waves);
}

void LoadJob::make_tensors() {
  const Communicator& comm = workspace_->comm();
  tensors_ = make_state(*plan_, comm.rank(), comm.device_handle(), executor_->arena());
}

TensorSet LoadJob::finish() {
  const Communicator& comm = workspace_->comm();
  const std::chrono::milliseconds timeout = timeout_of(workspace_->options());
  Readiness ready(*plan_, comm.rank(), tensors_, workspace_->options().on_ready);
  const bool all_read = executor_->run(ready);
  clock_.enter(Phase::wait);
  comm::agree(comm.control(), {}, executor_->error(), timeout);
  if (!all_read) throw TransportError("told of a failed rank, while none has failed");
  const auto reports =
      comm::agree_with_heartbeat(comm.control(), timeout, [&](const comm::Heartbeat& beat) {
        if (plan_->waves() == 0) ready.is_here(0);  // tensors without bytes
        ready.is_everywhere(std::max(plan_->waves(), 1U));
        // Unless the caller had to be told of them, when there is nothing left to read.
        if (!tensors_) comm::beat_during(beat, [&] { make_tensors(); });
        return core::to_wire(
            rank_report(plan_->ranks()[comm.rank()], *workspace_, *executor_, ready, clock_));
      });
  tensors_->report = make_report(*plan_, origin_, comm, reports);
  return TensorSet(std::move(tensors_));
}

template <class Step>
void LoadJob::or_release(const Step& step) try {
  step();
} catch (...) {
  const ErrorRecord error = core::current_error();  // bad_alloc, for example
  executor_.reset();
  tensors_.reset();
  if (has_workspace_) workspace_->release();
  end();
  raise(error);
}

std::vector<std::string> agree_on_call(const std::string& call, const Communicator& comm,
                                       const Options& options,
                                       const std::function<std::string()>& computation) {
  std::vector<Outcome> outcomes;
  for (const std::string& told :
       comm::agree_on_computation(comm.control(), timeout_of(options), [&] {
         return core::to_wire(Outcome{call, computation()});
       })) {
    outcomes.push_back(core::from_wire<Outcome>(told));
  }
  std::vector<std::string> results;
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const std::string& first = outcomes.front().call;
    if (outcomes[rank].call != first) {
      throw ConfigError(
          ErrorRecord{.rank = static_cast<std::int32_t>(rank),
                      .cause = "called " + outcomes[rank].call + ", while rank 0 called " + first});
    }
    results.push_back(std::move(outcomes[rank].result));
  }
  return results;
}

// Collective, because a rank that threw alone would leave the others waiting.
void check_together(const std::string& call, const Options& options, const Communicator& comm) {
  agree_on_call(call, comm, options, [&]() -> std::string {
    check_options(options);
    return {};
  });
}

std::unique_ptr<LoadJob> planned_load(std::shared_ptr<const source::Source> source,
                                      const Plan& plan, const Communicator& comm,
                                      const Options& options) {
  const comm::CollectiveCall call(comm, options.cancel);
  PhaseClock clock(Phase::plan, options.trace);
  check_together("load", options, comm);
  return std::make_unique<LoadJob>(
      std::make_shared<Workspace>(std::move(source), comm, options), [&] { return plan; },
      Origin{"load"}, std::move(clock));
}

}  // namespace safeshuffle::pipeline
