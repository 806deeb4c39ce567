// Replays a load, event by event. All ranks end a wave together in which they exchange; between two
// exchanges, each rank packs when it has read, and reads ahead while it has a free slab.
#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/prediction.hpp"

#include "core/text.hpp"
#include "plan/estimate.hpp"
#include "plan/schedule.hpp"
#include "plan/waves.hpp"
#include "simulation/node.hpp"
#include "simulation/traffic.hpp"
#include "simulation/work.hpp"

namespace safeshuffle {
namespace simulation {
namespace {

// Traffic of the waves that ranks work on at present, or may still work on.
class RecentTraffic {
 public:
  RecentTraffic(const plan::Schedule& schedule, std::uint32_t ranks_per_node)
      : counter_(schedule, ranks_per_node) {}

  // Of a wave that is not forgotten.
  const Traffic& of(std::uint32_t wave, std::uint32_t rank) {
    while (wave - first_ >= waves_.size()) {
      waves_.push_back(counter_.of_wave(first_ + static_cast<std::uint32_t>(waves_.size())));
    }
    return waves_[wave - first_][rank];
  }

  void forget_up_to(std::uint32_t wave) {
    for (; first_ <= wave; ++first_) waves_.pop_front();
  }

 private:
  TrafficCounter counter_;
  std::uint32_t first_ = 0;
  std::deque<std::vector<Traffic>> waves_;
};

// At least 1: a rank opens its files one after the other.
double ranks_per_core(const Cluster& cluster) {
  return std::max(1.0, static_cast<double>(cluster.ranks_per_node()) / cluster.machine.cores);
}

class Simulator {
 public:
  Simulator(const plan::Schedule& schedule, const Cluster& cluster, bool records)
      : schedule_(schedule),
        per_node_(cluster.ranks_per_node()),
        work_(cluster),
        wave_seconds_(cluster.machine.costs.wave_seconds),
        seconds_per_file_(plan::seconds_per_file * ranks_per_core(cluster)),
        first_complete_(plan::first_complete_wave(schedule)),
        packs_while_reading_(cluster.machine.device == DeviceKind::host &&
                             cluster.cached_share == 1),
        records_(records),
        traffic_(schedule, per_node_),
        nodes_(cluster.nodes),
        states_(schedule.world) {
    result_.ranks.resize(schedule.world);
  }

  Simulation run() && {
    open();
    while (true) {
      Node& node = *std::ranges::min_element(nodes_, {}, &Node::next);
      const double next = node.next();
      if (next == std::numeric_limits<double>::infinity()) break;
      now_ = next;
      for (const SimulatedSpan& span : node.finish(now_)) end(span);
    }
    result_.seconds = now_;
    sum_up();
    return std::move(result_);
  }

 private:
  // How far a rank is.
  struct State {
    double since = 0;            // it began to wait for a wave, or for an exchange
    double last_read = 0;        // its last read ended
    std::uint32_t begun = 0;     // waves that it has begun to read
    std::uint32_t ready = 0;     // waves that have been in its slabs
    std::uint32_t finished = 0;  // waves
    bool is_reading = false;
    bool is_waiting = true;  // for the wave to be in its slab
  };

  void open() {
    for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) {
      const double seconds =
          seconds_per_file_ * static_cast<double>(schedule_.ranks[rank].files.size());
      result_.ranks[rank].open = seconds;
      now_ = std::max(now_, seconds);
    }
    for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) {
      states_[rank].since = now_;
      read_ahead(rank);
    }
  }

  // What takes no time ends at once.
  void start(Step step, std::uint32_t rank, std::uint32_t wave, const Work& work) {
    const SimulatedSpan span{step, rank, wave, now_, now_};
    const bool takes_time =
        work.alone > 0 || std::ranges::any_of(work.use, [](double use) { return use > 0; });
    if (takes_time) return nodes_[rank / per_node_].start(span, work, now_);
    end(span);
  }

  void end(const SimulatedSpan& span) {
    if (records_ && span.end > span.begin) result_.spans.push_back(span);
    SimulatedRank& rank = result_.ranks[span.rank];
    const double seconds = span.end - span.begin;
    switch (span.step) {
      case Step::read:
        rank.read_busy += seconds;
        states_[span.rank].last_read = now_;
        return start(Step::copy, span.rank, span.wave,
                     work_.last_copy(traffic_.of(span.wave, span.rank)));
      case Step::copy:
        states_[span.rank].is_reading = false;
        ++states_[span.rank].ready;
        read_ahead(span.rank);
        return pack_if_ready(span.rank);
      case Step::pack:
        (packs_while_reading_ ? rank.read : rank.pack) += seconds;
        return end_pack(span.rank, span.wave);
      case Step::exchange:
        return arrive(Step::relay, span.wave);
      case Step::relay:
        return arrive(Step::unpack, span.wave);
      case Step::unpack:
        rank.pack += seconds;
        return finish_wave(span.rank);
    }
  }

  // Reads of a rank follow one another, as long as it has a free slab.
  void read_ahead(std::uint32_t rank) {
    State& state = states_[rank];
    const std::uint32_t wave = state.begun;
    if (state.is_reading || wave == schedule_.waves) return;
    if (wave >= state.finished + schedule_.slabs) return;
    state.is_reading = true;
    ++state.begun;
    start(Step::read, rank, wave, work_.read(traffic_.of(wave, rank), wave < schedule_.slabs));
  }

  void pack_if_ready(std::uint32_t rank) {
    State& state = states_[rank];
    if (!state.is_waiting || state.ready <= state.finished) return;
    state.is_waiting = false;
    SimulatedRank& result = result_.ranks[rank];
    const double read = std::clamp(state.last_read, state.since, now_) - state.since;
    result.read += read;
    result.host_to_device += now_ - state.since - read;
    const std::uint32_t wave = state.finished;
    start(Step::pack, rank, wave, work_.pack(traffic_.of(wave, rank), wave == 0));
  }

  void end_pack(std::uint32_t rank, std::uint32_t wave) {
    states_[rank].since = now_;
    const Traffic& traffic = traffic_.of(wave, rank);
    SimulatedRank& result = result_.ranks[rank];
    result.read_bytes += static_cast<std::uint64_t>(traffic.read);
    result.sent_bytes += static_cast<std::uint64_t>(traffic.sent);
    result.received_bytes += static_cast<std::uint64_t>(traffic.received);
    if (plan::ends_in_step(schedule_, wave)) return arrive(Step::exchange, wave);
    start(Step::unpack, rank, wave, work_.unpack(traffic));
  }

  // A step that all ranks begin together, when the last of them is done with the one before.
  void arrive(Step next, std::uint32_t wave) {
    if (++arrived_ != schedule_.world) return;
    arrived_ = 0;
    if (next == Step::unpack) end_exchange();
    for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) {
      start(next, rank, wave, work_of(next, traffic_.of(wave, rank)));
    }
    if (next == Step::unpack) traffic_.forget_up_to(wave);
  }

  void end_exchange() {
    for (std::uint32_t rank = 0; rank < schedule_.world; ++rank) {
      result_.ranks[rank].exchange += now_ - states_[rank].since;
    }
  }

  void finish_wave(std::uint32_t rank) {
    State& state = states_[rank];
    if (state.finished++ == first_complete_) result_.first_tensor_seconds = now_;
    state.since = now_;
    state.is_waiting = true;
    read_ahead(rank);
    pack_if_ready(rank);
  }

  Work work_of(Step step, const Traffic& traffic) const {
    if (step == Step::relay) return work_.exchange(traffic.relay);
    if (step == Step::unpack) return work_.unpack(traffic);
    Work work = work_.exchange(traffic.exchange);
    work.alone += wave_seconds_;
    return work;
  }

  void sum_up() {
    if (now_ == 0) return;
    std::array<double, resource_count> most{};
    for (const Node& node : nodes_) {
      for (std::size_t i = 0; i < resource_count; ++i) most[i] = std::max(most[i], node.busy()[i]);
    }
    result_.use = {most[0] / now_, most[1] / now_, most[2] / now_, most[3] / now_, most[4] / now_};
  }

  const plan::Schedule& schedule_;
  const std::uint32_t per_node_;
  const WorkModel work_;
  const double wave_seconds_;
  const double seconds_per_file_;
  const std::uint32_t first_complete_;  // wave
  const bool packs_while_reading_;
  const bool records_;
  RecentTraffic traffic_;
  std::vector<Node> nodes_;
  std::vector<State> states_;
  std::uint32_t arrived_ = 0;  // ranks, at the next common step
  double now_ = 0;
  Simulation result_;
};

}  // namespace
}  // namespace simulation

std::string_view name(Step step) noexcept {
  constexpr std::array<std::string_view, step_count> names{"read",     "copy",  "pack",
                                                           "exchange", "relay", "unpack"};
  return names[static_cast<std::size_t>(step)];
}

Simulation simulate(const Plan& plan, const Cluster& cluster, bool spans) {
  if (plan.world() != cluster.world) {
    throw ConfigError("the plan is for " + core::plural(plan.world(), "rank") + ", not " +
                      std::to_string(cluster.world));
  }
  return simulation::Simulator(plan.schedule(), cluster, spans).run();
}

}  // namespace safeshuffle
