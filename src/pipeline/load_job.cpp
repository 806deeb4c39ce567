#include "pipeline/load_job.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/collective_call.hpp"
#include "comm/control/agreement.hpp"
#include "core/cpus.hpp"
#include "core/process.hpp"
#include "core/wire.hpp"
#include "device/device.hpp"
#include "io/policy.hpp"
#include "io/reader.hpp"
#include "pipeline/executor.hpp"
#include "pipeline/limits.hpp"
#include "pipeline/open.hpp"
#include "pipeline/phase_clock.hpp"
#include "pipeline/report_wire.hpp"
#include "pipeline/tensor_state.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle::pipeline {
namespace {

// Collective, because a rank that threw alone would leave the others waiting.
void check_together(const Options& options, const Communicator& comm) {
  comm::agree_on(comm.control(), timeout_of(options), [&]() -> std::string {
    check_options(options);
    return {};
  });
}

// Fills in the site, and adds the memory of transport and packer to what the caller has reserved.
PlanOptions on_device(PlanOptions options, const Communicator& comm, const Site& site) {
  options.site = site;
  options.reserved_bytes += comm.transport().device_bytes() + comm.device_handle()->packer_bytes();
  return options;
}

Plan plan_together(Opened opened, const Communicator& comm, const Options& options) {
  std::optional<Plan> plan;
  comm::agree_on_computation(comm.control(), timeout_of(options), [&]() -> std::string {
    auto targets = select_targets(opened.checkpoint, opened.tp_plan, options, comm.size());
    plan = make_plan(std::move(opened.checkpoint.catalog), std::move(targets), comm.size(),
                     on_device(options.plan, comm, opened.site));
    return {};
  });
  return *plan;
}

// What a rank tells the others before it allocates anything.
struct Intent {
  std::uint64_t plan_hash = 0;
  std::string cpus;  // of its readers: equal on ranks of one node that share them
};

auto fields(core::As<Intent> auto& intent) {
  return std::tie(intent.plan_hash, intent.cpus);
}

// Every plan is proved before it is used.
std::vector<Intent> exchange_intents(const Plan& plan, const Communicator& comm,
                                     const Options& options) {
  const auto prove = [&]() -> std::string {
    if (plan.world() != comm.size()) {
      throw ConfigError("the plan is for " + std::to_string(plan.world()) + " ranks, not " +
                        std::to_string(comm.size()));
    }
    plan.prove();
    return core::to_wire(Intent{plan.hash(), io::shared_cpus(comm.device())});
  };
  std::vector<Intent> intents;
  for (const std::string& bytes :
       comm::agree_on_computation(comm.control(), timeout_of(options), prove)) {
    intents.push_back(core::from_wire<Intent>(bytes));
  }
  return intents;
}

// Every rank sees every hash, so either all throw or none does.
void compare_plans(const std::vector<Intent>& intents) {
  for (std::size_t rank = 0; rank < intents.size(); ++rank) {
    if (intents[rank].plan_hash == intents.front().plan_hash) continue;
    throw PlanError(ErrorRecord{
        .rank = static_cast<std::int32_t>(rank),
        .cause = "made a different plan from rank 0: do all ranks run the same program with the "
                 "same options?"});
  }
}

std::vector<Intent> agree_on_plan(const Plan& plan, const Communicator& comm,
                                  const Options& options) {
  std::vector<Intent> intents = exchange_intents(plan, comm, options);
  compare_plans(intents);
  return intents;
}

// How many ranks share the CPUs of this one's readers.
unsigned count_sharers(const std::vector<Intent>& intents, const Communicator& comm) {
  const std::string& mine = intents[comm.rank()].cpus;
  return static_cast<unsigned>(std::ranges::count(intents, mine, &Intent::cpus));
}

RankReport rank_report(const RankSummary& planned, const Communicator& comm,
                       const Executor& executor, PhaseClock& clock) {
  RankReport report;
  report.rank = planned.rank;
  report.host = core::host_name();
  report.device = comm.device_handle()->description();
  report.cores = core::available_cores();
  report.phases = clock.read();
  report.total_seconds = std::accumulate(report.phases.begin(), report.phases.end(), 0.0);
  report.cpu_seconds = clock.cpu_seconds();
  report.first_tensor_seconds = executor.first_tensor_seconds();
  report.read_busy_seconds = executor.reader().busy_seconds();
  report.read_hidden_seconds = std::max(
      0.0, report.read_busy_seconds - report.phases[static_cast<std::size_t>(Phase::read)]);
  report.sent_bytes = planned.sent_bytes;
  report.received_bytes = planned.received_bytes;
  report.kept_bytes = planned.kept_bytes;
  report.transport_device_bytes = comm.transport().device_bytes();
  report.packer_device_bytes = comm.device_handle()->packer_bytes();
  report.peak_device_bytes =
      planned.peak_device_bytes + report.transport_device_bytes + report.packer_device_bytes;
  report.peak_pinned_bytes = executor.reader().pinned_bytes() + report.packer_device_bytes;
  report.peak_resident_bytes = core::peak_resident_bytes();
  const io::IoPath path = executor.reader().io_path();
  report.read_bytes = path.direct_bytes + path.buffered_bytes;
  const Reading& reading = executor.reader().reading();
  report.reader_cpus = core::cpu_list(reading.cpus);
  report.reader_threads = reading.threads;
  report.reader_chunk = reading.chunk;
  report.io_path = path.mode.empty() ? "none" : path.engine + " " + path.mode;
  report.direct_bytes = path.direct_bytes;
  report.buffered_bytes = path.buffered_bytes;
  report.gds_bytes = path.device_bytes;
  report.in_place_bytes = executor.reader().in_place_bytes();
  for (const auto& [choice, bytes] : path.choices) {
    report.read_choices.push_back({choice.first, choice.second, bytes});
  }
  report.fallback_files = path.fallback_files;
  report.fallbacks = path.fallbacks;
  report.spans = clock.spans();
  return report;
}

Report make_report(const Plan& plan, const std::vector<std::string>& warnings,
                   const Communicator& comm, const std::vector<std::string>& rank_reports) {
  Report report;
  report.version = SAFESHUFFLE_VERSION;
  report.device = comm.device_handle()->description();
  report.transport = comm.transport_name();
  report.assignment = plan.assignment();
  report.assignment_reason = plan.assignment_reason();
  report.replicas = plan.replicas();
  report.plan_hash = plan.hash();
  report.waves = plan.waves();
  report.tensor_bytes = plan.needed_bytes();
  report.window = plan.window();
  report.warnings = warnings;
  report.placement = summarize(plan.catalog(), plan.targets());
  for (const std::string& bytes : rank_reports) {
    report.ranks.push_back(core::from_wire<RankReport>(bytes));
    report.seconds = std::max(report.seconds, report.ranks.back().total_seconds);
  }
  return report;
}

std::unique_ptr<Executor> allocate_together(const source::Source& source, const Plan& plan,
                                            const Communicator& comm, const Options& options,
                                            unsigned sharers, PhaseClock& clock) {
  const PhaseScope scope(clock, Phase::allocate);
  std::unique_ptr<Executor> executor;
  comm::agree_on(comm.control(), timeout_of(options), [&]() -> std::string {
    executor = std::make_unique<Executor>(source, plan, comm, options, sharers, clock);
    return {};
  });
  return executor;
}

TensorSet hand_over(const Plan& plan, const std::vector<std::string>& warnings,
                    std::optional<double> cached_share, const Communicator& comm,
                    const Executor& executor, const Options& options, PhaseClock& clock) {
  std::shared_ptr<TensorSet::State> state;
  const auto finish = [&](const comm::Heartbeat& beat) {
    std::string encoded;
    comm::beat_during(beat, [&] {
      state = make_state(plan, comm.rank(), comm.device_handle(), executor.arena());
      encoded = core::to_wire(rank_report(plan.ranks()[comm.rank()], comm, executor, clock));
    });
    return encoded;
  };
  const auto reports = comm::agree_with_heartbeat(comm.control(), timeout_of(options), finish);
  state->report = make_report(plan, warnings, comm, reports);
  state->report.stage = options.selection.stage;
  state->report.cached_share = cached_share;
  return TensorSet(std::move(state));
}

}  // namespace

LoadJob::LoadJob(const source::Source& source, const Communicator& comm, const Options& options)
    : source_(source), comm_(comm), options_(options), clock_(Phase::open, options.trace) {}

LoadJob::LoadJob(const source::Source& source, const std::vector<std::string>& paths,
                 const Communicator& comm, const Options& options)
    : LoadJob(source, comm, options) {
  const comm::CollectiveCall call(comm_);
  check_together(options_, comm_);
  Opened opened = open_together(source, paths, options_, comm_.device(), comm_.control());
  inputs_ = std::move(opened.inputs);
  cached_share_ = opened.cached_share;
  warnings_ = open_warnings(opened.checkpoint, opened.tp_plan, options_, comm_.size());
  clock_.enter(Phase::plan);
  plan_ = plan_together(std::move(opened), comm_, options_);
  agree();
  clock_.pause();
}

LoadJob::LoadJob(const source::Source& source, const Plan& plan, const Communicator& comm,
                 const Options& options)
    : LoadJob(source, comm, options) {
  const comm::CollectiveCall call(comm_);
  clock_.enter(Phase::plan);
  options_.selection = {};  // not used, see loader.hpp
  check_together(options_, comm_);
  plan_ = plan;
  agree();
  clock_.pause();
}

void LoadJob::agree() {
  const std::vector<Intent> intents = agree_on_plan(*plan_, comm_, options_);
  sharers_ = count_sharers(intents, comm_);
  std::ranges::move(plan_->warnings(), std::back_inserter(warnings_));
}

TensorSet LoadJob::run() {
  if (std::exchange(ran_, true)) throw ConfigError("a planned load can run only once");
  const comm::CollectiveCall call(comm_);
  clock_.resume();
  const auto executor = allocate_together(source_, *plan_, comm_, options_, sharers_, clock_);
  executor->run();
  clock_.enter(Phase::wait);
  comm::agree(comm_.control(), {}, executor->error(), timeout_of(options_));
  return hand_over(*plan_, warnings_, cached_share_, comm_, *executor, options_, clock_);
}

}  // namespace safeshuffle::pipeline
