// The load from first to last.
#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "safeshuffle/loader.hpp"

#include "comm/agreement.hpp"
#include "comm/collective_call.hpp"
#include "core/cpus.hpp"
#include "core/process.hpp"
#include "core/wire.hpp"
#include "device/device.hpp"
#include "pipeline/executor.hpp"
#include "pipeline/limits.hpp"
#include "pipeline/open.hpp"
#include "pipeline/phase_clock.hpp"
#include "pipeline/reading.hpp"
#include "pipeline/report_wire.hpp"
#include "pipeline/tensor_state.hpp"
#include "plan/schedule.hpp"

namespace safeshuffle {
namespace {

using pipeline::PhaseClock;
using pipeline::PhaseScope;
using pipeline::timeout_of;

// Agreed on, because a rank that threw alone would leave the others waiting.
void check_together(const Options& options, const Communicator& comm) {
  comm::agree_on(comm.transport(), timeout_of(options), [&]() -> std::string {
    pipeline::check_options(options);
    return {};
  });
}

// The window that suits the device; and besides what the caller has reserved, what transport and
// packer take.
PlanOptions on_device(PlanOptions options, const Communicator& comm) {
  if (options.window == 0) options.window = pipeline::defaults_on(comm.device()).window;
  options.reserved_bytes += comm.transport().device_bytes() + comm.device_handle()->packer_bytes();
  return options;
}

Plan plan_together(pipeline::Opened opened, const Communicator& comm, const Options& options) {
  std::optional<Plan> plan;
  comm::agree_on_computation(comm.transport(), timeout_of(options), [&]() -> std::string {
    auto placements = opened.tp_plan.place_all(opened.checkpoint.catalog, comm.size());
    plan = make_plan(std::move(opened.checkpoint.catalog), std::move(placements), comm.size(),
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

std::string shared_cpus(const Communicator& comm, const Options& options) {
  return core::node_id() + " " + core::cpu_list(pipeline::usable_cpus(options, comm.device()));
}

// No plan is followed unproven.
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
       comm::agree_on_computation(comm.transport(), timeout_of(options), prove)) {
    intents.push_back(decode_intent(bytes));
  }
  return intents;
}

// Every rank sees every hash, so all of them throw or none.
void compare_plans(const std::vector<Intent>& intents) {
  for (std::size_t rank = 0; rank < intents.size(); ++rank) {
    if (intents[rank].plan_hash == intents.front().plan_hash) continue;
    throw PlanError(ErrorRecord{
        .rank = static_cast<std::int32_t>(rank),
        .cause = "made another plan than rank 0: do all ranks run the same program with the "
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
                       const pipeline::Executor& executor, PhaseClock& clock) {
  RankReport report;
  report.rank = planned.rank;
  report.host = core::host_name();
  report.device = comm.device_handle()->description();
  report.cores = core::available_cores();
  report.phases = clock.read();
  report.total_seconds = std::accumulate(report.phases.begin(), report.phases.end(), 0.0);
  report.read_busy_seconds = executor.read_busy_seconds();
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
  report.peak_pinned_bytes = executor.pinned_bytes() + report.packer_device_bytes;
  report.peak_resident_bytes = core::peak_resident_bytes();
  const io::IoPath path = executor.io_path();
  report.reader_cpus = core::cpu_list(executor.reading().cpus);
  report.reader_threads = executor.reading().threads;
  report.reader_chunk = executor.reading().chunk;
  report.io_path = path.mode.empty() ? "none" : path.engine + " " + path.mode;
  report.direct_bytes = path.direct_bytes;
  report.buffered_bytes = path.buffered_bytes;
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
  report.plan_hash = plan.hash();
  report.waves = plan.waves();
  report.window = plan.window();
  report.warnings = plan.warnings();
  report.placement = summarize(plan.catalog(), plan.placements());
  for (const std::string& bytes : rank_reports) {
    report.ranks.push_back(pipeline::decode_rank_report(bytes));
    report.tensor_bytes += report.ranks.back().read_bytes;
    report.seconds = std::max(report.seconds, report.ranks.back().total_seconds);
  }
  return report;
}

std::unique_ptr<pipeline::Executor> allocate_together(const Plan& plan, const Communicator& comm,
                                                      const Options& options, unsigned sharers,
                                                      PhaseClock& clock) {
  const PhaseScope scope(clock, Phase::allocate);
  std::unique_ptr<pipeline::Executor> executor;
  comm::agree_on(comm.transport(), timeout_of(options), [&]() -> std::string {
    executor = std::make_unique<pipeline::Executor>(plan, comm, options, sharers, clock);
    return {};
  });
  return executor;
}

TensorSet hand_over(const Plan& plan, const Communicator& comm, const pipeline::Executor& executor,
                    const Options& options, PhaseClock& clock) {
  std::shared_ptr<TensorSet::State> state;
  const auto reports = comm::agree_on_computation(comm.transport(), timeout_of(options), [&] {
    state = pipeline::make_state(plan, comm.rank(), comm.device_handle(), executor.arena());
    return pipeline::encode(rank_report(plan.ranks()[comm.rank()], comm, executor, clock));
  });
  state->report = make_report(plan, comm, reports);
  return TensorSet(std::move(state));
}

TensorSet execute(const Plan& plan, const Communicator& comm, const Options& options,
                  unsigned sharers, PhaseClock& clock) {
  const auto executor = allocate_together(plan, comm, options, sharers, clock);
  executor->run();
  clock.enter(Phase::wait);
  comm::agree(comm.transport(), {}, executor->error(), timeout_of(options));
  return hand_over(plan, comm, *executor, options, clock);
}

}  // namespace

struct PlannedLoad::State {
  Communicator comm;
  Options options;
  PhaseClock clock;
  std::optional<Plan> plan = {};
  std::vector<std::string> inputs = {};
  unsigned sharers = 1;
  bool ran = false;
};

PlannedLoad::PlannedLoad(const std::vector<std::string>& paths, const Communicator& comm,
                         const Options& options)
    : state_(new State{comm, options, PhaseClock(Phase::open, options.trace)}) {
  const comm::CollectiveCall call(comm);
  check_together(options, comm);
  auto opened =
      pipeline::open_together(paths, options.tp_plan, comm.transport(), timeout_of(options));
  state_->inputs = std::move(opened.inputs);
  state_->clock.enter(Phase::plan);
  state_->plan = plan_together(std::move(opened), comm, options);
  state_->sharers = agree_on_plan(*state_->plan, comm, options);
  state_->clock.pause();
}

PlannedLoad::PlannedLoad(PlannedLoad&&) noexcept = default;
PlannedLoad& PlannedLoad::operator=(PlannedLoad&&) noexcept = default;
PlannedLoad::~PlannedLoad() = default;

const Plan& PlannedLoad::plan() const noexcept {
  return *state_->plan;
}

const std::vector<std::string>& PlannedLoad::inputs() const noexcept {
  return state_->inputs;
}

TensorSet PlannedLoad::run() {
  if (std::exchange(state_->ran, true)) throw ConfigError("a planned load can run only once");
  const comm::CollectiveCall call(state_->comm);
  state_->clock.resume();
  return execute(*state_->plan, state_->comm, state_->options, state_->sharers, state_->clock);
}

TensorSet load(const Plan& plan, const Communicator& comm, const Options& options) {
  const comm::CollectiveCall call(comm);
  PhaseClock clock(Phase::plan, options.trace);
  check_together(options, comm);
  const unsigned sharers = agree_on_plan(plan, comm, options);
  return execute(plan, comm, options, sharers, clock);
}

TensorSet load(const std::vector<std::string>& paths, const Communicator& comm,
               const Options& options) {
  return PlannedLoad(paths, comm, options).run();
}

TensorSet load(const std::string& path, const Communicator& comm, const Options& options) {
  return load(std::vector<std::string>{path}, comm, options);
}

}  // namespace safeshuffle
