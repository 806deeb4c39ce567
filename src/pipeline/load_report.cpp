#include "pipeline/load_report.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "comm/exchange/transport.hpp"
#include "core/cpus.hpp"
#include "core/process.hpp"
#include "device/device.hpp"
#include "io/reader.hpp"
#include "pipeline/report_wire.hpp"

namespace safeshuffle::pipeline {

RankReport rank_report(const RankSummary& planned, const Workspace& workspace,
                       const Executor& executor, const Readiness& ready, PhaseClock& clock) {
  const Communicator& comm = workspace.comm();
  RankReport report;
  report.rank = planned.rank;
  report.host = core::host_name();
  report.device = comm.device_handle()->description();
  report.cores = core::available_cores();
  report.phases = clock.read();
  report.total_seconds = std::accumulate(report.phases.begin(), report.phases.end(), 0.0);
  report.cpu_seconds = clock.cpu_seconds();
  report.first_tensor_seconds = ready.first_tensor_seconds();
  report.first_layer_seconds = ready.first_layer_seconds();
  report.read_busy_seconds = workspace.reader()->busy_seconds();
  report.read_hidden_seconds = std::max(
      0.0, report.read_busy_seconds - report.phases[static_cast<std::size_t>(Phase::read)]);
  report.sent_bytes = planned.sent_bytes;
  report.received_bytes = planned.received_bytes;
  report.kept_bytes = planned.kept_bytes;
  report.transport_device_bytes = comm.transport().device_bytes();
  report.packer_device_bytes = comm.device_handle()->packer_bytes();
  report.peak_device_bytes =
      workspace.device_bytes() + report.transport_device_bytes + report.packer_device_bytes;
  report.peak_pinned_bytes = workspace.pinned_bytes() + report.packer_device_bytes;
  report.peak_resident_bytes = core::peak_resident_bytes();
  const io::IoPath path = workspace.reader()->path();
  report.read_bytes = path.direct_bytes + path.buffered_bytes;
  const Reading& reading = workspace.reading();
  report.reader_cpus = core::cpu_list(reading.cpus);
  report.reader_threads = reading.threads;
  report.reader_chunk = reading.chunk;
  report.io_path = path.mode.empty() ? "none" : path.engine + " " + path.mode;
  report.direct_bytes = path.direct_bytes;
  report.buffered_bytes = path.buffered_bytes;
  report.gds_bytes = path.device_bytes;
  report.in_place_bytes = executor.in_place_bytes();
  for (const auto& [choice, bytes] : path.choices) {
    report.read_choices.push_back({choice.first, choice.second, bytes});
  }
  report.requests = workspace.source().requests();
  report.fallback_files = path.fallback_files;
  report.fallbacks = path.fallbacks;
  report.spans = clock.spans();
  return report;
}

Report make_report(const Plan& plan, const Origin& origin, const Communicator& comm,
                   const std::vector<std::string>& rank_reports) {
  Report report;
  report.version = SAFESHUFFLE_VERSION;
  report.device = comm.device_handle()->description();
  report.transport = comm.transport_name();
  report.assignment = plan.assignment();
  report.assignment_reason = plan.assignment_reason();
  report.order = plan.order();
  report.replicas = plan.replicas();
  report.plan_hash = plan.hash();
  report.waves = plan.waves();
  report.tensor_bytes = plan.needed_bytes();
  report.window = plan.window();
  report.stage = origin.stage;
  report.cached_share = origin.cached_share;
  report.warnings = origin.warnings;
  report.placement = summarize(plan.catalog(), plan.targets());
  for (const std::string& bytes : rank_reports) {
    report.ranks.push_back(core::from_wire<RankReport>(bytes));
    report.seconds = std::max(report.seconds, report.ranks.back().total_seconds);
  }
  return report;
}

}  // namespace safeshuffle::pipeline
