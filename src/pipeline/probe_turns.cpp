#include "pipeline/probe_turns.hpp"

#include <algorithm>
#include <string_view>

#include "comm/control/agreement.hpp"
#include "core/wire.hpp"

namespace safeshuffle::pipeline {
namespace {

std::string encode(const Run& run, double elapsed) {
  core::WireWriter out;
  out.put(run.bytes).put(run.seconds).put(run.obstacle).put(elapsed);
  out.put(std::uint64_t{run.residency.has_value()});
  const Residency residency = run.residency.value_or(Residency());
  return out.put(residency.sample).put(residency.before).put(residency.after).take();
}

Run decode(std::string_view bytes, double& elapsed) {
  core::WireReader in(bytes);
  Run run;
  run.bytes = in.number();
  run.seconds = in.real();
  run.obstacle = in.text();
  elapsed = in.real();
  const bool has_residency = in.number() != 0;
  Residency residency{in.number(), in.number(), in.number()};
  if (has_residency) run.residency = residency;
  return run;
}

/// That of all ranks together: they work side by side, so the slowest one ends the run.
void add(Run& all, const Run& one) {
  all.bytes += one.bytes;
  all.seconds = std::max(all.seconds, one.seconds);
  if (all.obstacle.empty()) all.obstacle = one.obstacle;
  if (!one.residency) return;
  Residency sum = all.residency.value_or(Residency());
  sum.sample += one.residency->sample;
  sum.before += one.residency->before;
  sum.after += one.residency->after;
  all.residency = sum;
}

/// One measurement in progress.
class Series {
 public:
  Series(Trial& trial, comm::Control& control, std::uint32_t nodes)
      : trial_(trial), control_(control), nodes_(nodes) {
    result_.name = trial.name();
    result_.of = trial.of();
    result_.is_time = trial.is_time();
  }

  bool ended() const { return !result_.obstacle.empty(); }

  /// Returns the seconds that rank 0 says have passed.
  double run(const ProbeOptions& options, const core::Clock::time_point start) {
    const auto obstacles = comm::agree_on(control_, options.timeout,
                                          [&] { return takes_part() ? trial_.prepare() : ""; });
    for (const std::string& obstacle : obstacles) {
      if (!obstacle.empty() && !ended()) result_.obstacle = obstacle;
    }
    if (ended()) return 0;
    double elapsed = 0;
    Run all;
    const auto runs = share_runs(options, start);
    for (std::size_t rank = runs.size(); rank-- > 0;) add(all, decode(runs[rank], elapsed));
    note(all);
    return elapsed;
  }

  Measurement finish() {
    if (!values_.empty() && !ended()) result_.result = spread_of(std::move(values_));
    return std::move(result_);
  }

 private:
  bool takes_part() const {
    return trial_.of() != Measurement::Of::one_rank || control_.rank() == 0;
  }

  std::vector<std::string> share_runs(const ProbeOptions& options,
                                      const core::Clock::time_point start) {
    const auto run = [&] {
      const Run mine = takes_part() ? trial_.run() : Run();
      return encode(mine, core::seconds_since(start));
    };
    if (!trial_.is_collective()) return comm::agree_on(control_, options.timeout, run);
    return comm::agree(control_, run(), {}, options.timeout);
  }

  void note(const Run& all) {
    result_.obstacle = all.obstacle;
    result_.bytes = all.bytes;
    note_residency(all);
    if (ended()) return;
    if (trial_.is_time()) {
      values_.push_back(all.seconds);
    } else if (all.seconds > 0) {
      values_.push_back(static_cast<double>(all.bytes) / all.seconds / divisor());
    }
  }

  void note_residency(const Run& all) {
    if (!all.residency) return;
    if (!result_.residency) result_.residency = all.residency;
    Residency& noted = *result_.residency;
    noted.before = trial_.is_warm() ? std::min(noted.before, all.residency->before)
                                    : std::max(noted.before, all.residency->before);
    noted.sample = all.residency->sample;
    noted.after = all.residency->after;
  }

  double divisor() const {
    switch (trial_.of()) {
      case Measurement::Of::node:
        return nodes_;
      case Measurement::Of::each_rank:
        return control_.size();
      case Measurement::Of::one_rank:
        break;
    }
    return 1;
  }

  Trial& trial_;
  comm::Control& control_;
  const std::uint32_t nodes_;
  std::vector<double> values_;
  Measurement result_;
};

/// The share of the work that is done, as far as is known.
double share_done(std::size_t runs, std::size_t most_runs, double elapsed, double seconds) {
  const double by_runs = static_cast<double>(runs) / static_cast<double>(most_runs);
  return std::min(1.0, std::max(by_runs, elapsed / seconds));
}

void report(const ProbeOptions& options, comm::Control& control, double share) {
  comm::agree_on(control, options.timeout, [&]() -> std::string {
    if (options.on_progress) options.on_progress(share);
    return {};
  });
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back(), static_cast<std::uint32_t>(values.size())};
}

std::vector<Measurement> take_turns(comm::Control& control, std::uint32_t nodes, Trials& trials,
                                    const Turns& turns, const ProbeOptions& options) {
  const auto start = core::Clock::now();
  std::vector<Series> series;
  for (const auto& trial : trials) series.emplace_back(*trial, control, nodes);
  double elapsed = 0;
  std::size_t runs = 0;
  for (std::uint32_t round = 0; round < turns.most_rounds; ++round) {
    if (round != 0 && elapsed > turns.seconds) break;
    for (Series& each : series) {
      if (!each.ended()) elapsed = std::max(elapsed, each.run(options, start));
      const std::size_t most_runs = series.size() * turns.most_rounds;
      report(options, control, share_done(++runs, most_runs, elapsed, turns.seconds));
    }
  }
  report(options, control, 1);
  std::vector<Measurement> results;
  for (Series& each : series) results.push_back(each.finish());
  return results;
}

}  // namespace safeshuffle::pipeline
