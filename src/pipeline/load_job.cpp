#include "pipeline/load_job.hpp"

#include <algorithm>
#include <chrono>
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
#include "pipeline/cached_share.hpp"
#include "pipeline/executor.hpp"
#include "pipeline/limits.hpp"
#include "pipeline/open.hpp"
#include "pipeline/phase_clock.hpp"
#include "pipeline/report_wire.hpp"
#include "pipeline/sharers.hpp"
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

// Fills in the device's default window, and adds the memory of transport and packer to what the
// caller has reserved.
PlanOptions on_device(PlanOptions options, const Communicator& comm) {
  if (options.window == 0) options.window = io::defaults_on(comm.device()).window;
  options.reserved_bytes += comm.transport().device_bytes() + comm.device_handle()->packer_bytes();
  return options;
}

Plan plan_together(Opened opened, const Communicator& comm, const Options& options) {
  std::optional<Plan> plan;
  comm::agree_on_computation(comm.control(), timeout_of(options), [&]() -> std::string {
    auto targets = select_targets(opened.checkpoint, opened.tp_plan, options, comm.size());
    plan = make_plan(std::move(opened.checkpoint.catalog), std::move(targets), comm.size(),
                     on_device(options.plan, comm));
    return {};
  });
  return *plan;
}

// What a rank tells the others before it allocates anything.
struct Intent {
  std::uint64_t plan_hash = 0;
  std::string cpus;  // of its readers: equal on ranks of one node that share them
};

std::string encode(const Intent& intent) {
  return core::WireWriter().put(intent.plan_hash).put(intent.cpus).take();
}

Intent decode_intent(std::string_view bytes) {
  core::WireReader in(bytes);
  const std::uint64_t hash = in.number();
  return {hash, in.text()};
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
    return encode({plan.hash(), shared_cpus(comm, options)});
  };
  std::vector<Intent> intents;
  for (const std::string& bytes :
       comm::agree_on_computation(comm.control(), timeout_of(options), prove)) {
    intents.push_back(decode_intent(bytes));
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

// Returns how many ranks share the CPUs of this one's readers.
unsigned agree_on_plan(const Plan& plan, const Communicator& comm, const Options& options) {
  const std::vector<Intent> intents = exchange_intents(plan, comm, options);
  compare_plans(intents);
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
  report.read_busy_seconds = executor.reader().busy_seconds();
  report.read_hidden_seconds = std::max(
      0.0, report.read_busy_seconds - report.phases[static_cast<std::size_t>(Phase::read)]);
  report.read_bytes = planned.read_bytes;
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
  const Reading& reading = executor.reader().reading();
  report.reader_cpus = core::cpu_list(reading.cpus);
  report.reader_threads = reading.threads;
  report.reader_chunk = reading.chunk;
  report.io_path = path.mode.empty() ? "none" : path.engine + " " + path.mode;
  report.direct_bytes = path.direct_bytes;
  report.buffered_bytes = path.buffered_bytes;
  report.gds_bytes = path.device_bytes;
  for (const auto& [choice, bytes] : path.choices) {
    report.read_choices.push_back({choice.first, choice.second, bytes});
  }
  report.fallback_files = path.fallback_files;
  report.fallbacks = path.fallbacks;
  report.spans = clock.spans();
  return report;
}

Report make_report(const Plan& plan, const Communicator& comm,
                   const std::vector<std::string>& rank_reports) {
  Report report;
  report.version = SAFESHUFFLE_VERSION;
  report.device = comm.device_handle()->description();
  report.transport = comm.transport_name();
  report.replicas = plan.replicas();
  report.plan_hash = plan.hash();
  report.waves = plan.waves();
  report.tensor_bytes = plan.needed_bytes();
  report.window = plan.window();
  report.warnings = plan.warnings();
  report.placement = summarize(plan.catalog(), plan.targets());
  for (const std::string& bytes : rank_reports) {
    report.ranks.push_back(decode_rank_report(bytes));
    report.seconds = std::max(report.seconds, report.ranks.back().total_seconds);
  }
  return report;
}

std::unique_ptr<Executor> allocate_together(const source::Source& source, const Plan& plan,
                                            const Communicator& comm, const Options& options,
                                            unsigned sharers, PhaseClock& clock,
                                            std::optional<double>& cached) {
  const PhaseScope scope(clock, Phase::allocate);
  std::unique_ptr<Executor> executor;
  comm::agree_on(comm.control(), timeout_of(options), [&]() -> std::string {
    cached = cached_share(source, plan.catalog().files(), plan.ranks()[comm.rank()].files);
    executor = std::make_unique<Executor>(source, plan, comm, options, sharers, clock);
    return {};
  });
  return executor;
}

TensorSet hand_over(const Plan& plan, const Communicator& comm, const Executor& executor,
                    const Options& options, PhaseClock& clock, std::optional<double> cached) {
  std::shared_ptr<TensorSet::State> state;
  const auto reports = comm::agree_on_computation(comm.control(), timeout_of(options), [&] {
    state = make_state(plan, comm.rank(), comm.device_handle(), executor.arena());
    RankReport mine = rank_report(plan.ranks()[comm.rank()], comm, executor, clock);
    mine.cached_share = cached;
    return pipeline::encode(mine);
  });
  state->report = make_report(plan, comm, reports);
  state->report.stage = options.selection.stage;
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
  Opened opened = open_together(source, paths, options_, comm_.control());
  inputs_ = std::move(opened.inputs);
  clock_.enter(Phase::plan);
  plan_ = plan_together(std::move(opened), comm_, options_);
  sharers_ = agree_on_plan(*plan_, comm_, options_);
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
  sharers_ = agree_on_plan(plan, comm_, options_);
  clock_.pause();
}

TensorSet LoadJob::run() {
  if (std::exchange(ran_, true)) throw ConfigError("a planned load can run only once");
  const comm::CollectiveCall call(comm_);
  clock_.resume();
  std::optional<double> cached;
  const auto executor =
      allocate_together(source_, *plan_, comm_, options_, sharers_, clock_, cached);
  executor->run();
  clock_.enter(Phase::wait);
  comm::agree(comm_.control(), {}, executor->error(), timeout_of(options_));
  return hand_over(*plan_, comm_, *executor, options_, clock_, cached);
}

}  // namespace safeshuffle::pipeline
