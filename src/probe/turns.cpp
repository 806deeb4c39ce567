#include "probe/turns.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <string_view>

#include "comm/control/agreement.hpp"
#include "core/process.hpp"
#include "core/wire.hpp"

namespace safeshuffle {

namespace probing {
namespace {

/// A run, and where and when it was made.
struct NodeRun {
  std::string node;
  double elapsed = 0;
  Run run;
};

auto fields(core::As<NodeRun> auto& made) {
  auto& run = made.run;
  return std::tie(made.node, made.elapsed, run.bytes, run.begin, run.end, run.times, run.obstacle);
}

/// The runs of several ranks, side by side.
struct Together {
  struct Interval {
    core::Clock::time_point begin;
    core::Clock::time_point end;
  };

  std::uint64_t bytes = 0;
  std::uint32_t times = 1;
  std::string obstacle;
  std::map<std::string, Interval> nodes;

  void add(const NodeRun& made) {
    const Run& run = made.run;
    bytes += run.bytes;
    times = run.times;
    if (obstacle.empty()) obstacle = run.obstacle;
    Interval& all = nodes.try_emplace(made.node, Interval{run.begin, run.end}).first->second;
    all = {std::min(all.begin, run.begin), std::max(all.end, run.end)};
  }

  /// On a node, from the first rank's beginning to the last one's end: if there are more ranks than
  /// cores, they may run one after the other. The slowest node counts.
  double seconds() const {
    std::chrono::duration<double> longest{0};
    for (const auto& [node, interval] : nodes) {
      longest = std::max<std::chrono::duration<double>>(longest, interval.end - interval.begin);
    }
    return longest.count();
  }
};

/// One measurement in progress.
class Series {
 public:
  Series(const Trial& trial, comm::Control& control, std::uint32_t nodes)
      : trial_(trial), control_(control), nodes_(nodes) {
    result_.name = trial.name;
    result_.of = trial.of;
    result_.is_time = trial.is_time;
  }

  bool ended() const { return !result_.obstacle.empty(); }

  /// Returns the seconds that rank 0 says have passed.
  double run(const ProbeOptions& options, const core::Clock::time_point start) {
    const auto obstacles = comm::agree_on(control_, options.timeout, [&] {
      return takes_part(control_.rank()) ? trial_.prepare() : "";
    });
    for (const std::string& obstacle : obstacles) {
      if (!obstacle.empty() && !ended()) result_.obstacle = obstacle;
    }
    if (ended()) return 0;
    const auto runs = share_runs(options, start);
    Together all;
    for (std::uint32_t rank = 0; rank < runs.size(); ++rank) {
      if (takes_part(rank)) all.add(core::from_wire<NodeRun>(runs[rank]));
    }
    note(all);
    return core::from_wire<NodeRun>(runs.front()).elapsed;
  }

  Measurement finish() {
    if (!values_.empty() && !ended()) result_.result = spread_of(std::move(values_));
    return std::move(result_);
  }

 private:
  bool takes_part(std::uint32_t rank) const {
    return trial_.of != Measurement::Of::one_rank || rank == 0;
  }

  std::vector<std::string> share_runs(const ProbeOptions& options,
                                      const core::Clock::time_point start) {
    const auto run = [&] {
      const Run mine = takes_part(control_.rank()) ? trial_.run() : Run();
      return core::to_wire(NodeRun{core::node_id(), core::seconds_since(start), mine});
    };
    if (!trial_.is_collective) return comm::agree_on(control_, options.timeout, run);
    return comm::agree(control_, run(), {}, options.timeout);
  }

  void note(const Together& all) {
    result_.obstacle = all.obstacle;
    result_.bytes = all.bytes;
    if (ended()) return;
    const double seconds = all.seconds();
    if (trial_.is_time) {
      values_.push_back(seconds / all.times);
    } else if (seconds > 0) {
      values_.push_back(static_cast<double>(all.bytes) / seconds / divisor());
    }
  }

  double divisor() const {
    switch (trial_.of) {
      case Measurement::Of::node:
        return nodes_;
      case Measurement::Of::each_rank:
        return control_.size();
      case Measurement::Of::one_rank:
        break;
    }
    return 1;
  }

  const Trial& trial_;
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

std::vector<Measurement> take_turns(comm::Control& control, std::uint32_t nodes,
                                    const Trials& trials, const Turns& turns,
                                    const ProbeOptions& options) {
  const auto start = core::Clock::now();
  std::vector<Series> series;
  for (const Trial& trial : trials) series.emplace_back(trial, control, nodes);
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

}  // namespace probing
}  // namespace safeshuffle
