// What a load reached of the machine's ceilings.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "safeshuffle/probe.hpp"
#include "safeshuffle/report.hpp"

#include "core/process.hpp"

namespace safeshuffle {
namespace {

double phase_seconds(const RankReport& rank, Phase phase) {
  return rank.phases[static_cast<std::size_t>(phase)];
}

double sum(const Report& report, double (*value)(const RankReport&)) {
  double total = 0;
  for (const RankReport& rank : report.ranks) total += value(rank);
  return total;
}

double total(const Report& report, std::uint64_t RankReport::*bytes) {
  double sum = 0;
  for (const RankReport& rank : report.ranks) sum += static_cast<double>(rank.*bytes);
  return sum;
}

/// How long a rank was reading: itself, or with its reader threads, beside other phases.
double reading_seconds(const RankReport& rank) {
  return std::max(rank.read_busy_seconds, phase_seconds(rank, Phase::read));
}

double longest_reading_seconds(const Report& report) {
  double longest = 0;
  for (const RankReport& rank : report.ranks) longest = std::max(longest, reading_seconds(rank));
  return longest;
}

/// The average over all ranks.
double seconds_in(const Report& report, Phase phase) {
  double sum = 0;
  for (const RankReport& rank : report.ranks) sum += phase_seconds(rank, phase);
  return sum / static_cast<double>(report.ranks.size());
}

/// Of `bytes` in `seconds`, where the machine needs `least_seconds`; none if one of them is not
/// known.
std::optional<Reached> reached(Phase step, std::string ceiling, double bytes, double seconds,
                               double least_seconds) {
  if (bytes <= 0 || seconds <= 0 || least_seconds <= 0) return {};
  return Reached{step, std::move(ceiling), bytes / seconds, bytes / least_seconds};
}

double seconds_at(double bytes, double rate) {
  return rate > 0 ? bytes / rate : 0;
}

bool is_on_host(const Report& report) {
  return report.device == "host" || report.device.starts_with("host (");
}

/// What a rank keeps without receiving it, on average.
double own_bytes(const Report& report) {
  const double own =
      total(report, &RankReport::kept_bytes) - total(report, &RankReport::received_bytes);
  return std::max(0.0, own) / static_cast<double>(report.ranks.size());
}

/// Bytes by how a load read them.
struct ReadBytes {
  double cold_direct = 0;
  double cold_buffered = 0;
  double warm = 0;
  double unknown = 0;  ///< through the page cache, which had some of them, or it is not known
};

/// Known to be in the page cache, or by an estimate (io/policy.cpp).
bool is_cached(const ReadChoice& choice) {
  return choice.reason == "cached" || choice.reason == "likely cached";
}

void add_bytes(const RankReport& rank, ReadBytes& sum) {
  sum.cold_direct += static_cast<double>(rank.direct_bytes);
  sum.unknown += static_cast<double>(rank.buffered_bytes);
  for (const ReadChoice& choice : rank.read_choices) {
    if (!is_cached(choice)) continue;
    sum.warm += static_cast<double>(choice.bytes);
    sum.unknown -= static_cast<double>(choice.bytes);
  }
}

// Bytes read through the page cache, where nobody looked first or nothing could be found out, are
// judged by a sample.
void judge_unknown(std::optional<double> cached_share, ReadBytes& bytes) {
  constexpr double few = 0.05;
  if (!cached_share) return;
  if (*cached_share <= few) bytes.cold_buffered = std::exchange(bytes.unknown, 0);
  if (*cached_share >= 1 - few) bytes.warm += std::exchange(bytes.unknown, 0);
}

ReadBytes read_bytes(const Report& report) {
  ReadBytes bytes;
  for (const RankReport& rank : report.ranks) add_bytes(rank, bytes);
  judge_unknown(report.cached_share, bytes);
  return bytes;
}

double node_count(const Report& report) {
  std::vector<std::string> nodes;
  for (const RankReport& rank : report.ranks) nodes.push_back(rank.host);
  return core::node_count(nodes);
}

/// What all nodes together need at least for reading in these ways, one after the other.
struct ReadCeiling {
  std::string name;
  double seconds = 0;  ///< on one node; 0: not known
};

ReadCeiling read_ceiling(const ReadBytes& bytes, const Costs& costs) {
  if (bytes.unknown > 0) return {};
  ReadCeiling ceiling;
  const auto add = [&ceiling](const char* name, double part, double rate) {
    if (part <= 0) return true;
    ceiling.name += (ceiling.name.empty() ? "" : " and ") + std::string(name);
    ceiling.seconds += seconds_at(part, rate);
    return rate > 0;
  };
  const bool known = add("cold direct", bytes.cold_direct, costs.read_cold_direct_node) &&
                     add("cold buffered", bytes.cold_buffered, costs.read_cold_buffered_node) &&
                     add("warm", bytes.warm, costs.read_warm_node);
  return known ? ceiling : ReadCeiling{};
}

/// Whether the loading threads themselves read, straight from the page cache to where the data is
/// to stay, instead of waiting for reader threads.
bool reads_in_place(const Report& report) {
  const double waited =
      sum(report, [](const RankReport& rank) { return phase_seconds(rank, Phase::read); });
  const double busy = sum(report, [](const RankReport& rank) { return rank.read_busy_seconds; });
  constexpr double more = 1.05;  // than a wait takes by itself
  return is_on_host(report) && read_bytes(report).warm > 0 && waited > more * busy;
}

std::optional<Reached> reached_by_reading(const Report& report, const Costs& costs) {
  ReadCeiling ceiling = read_ceiling(read_bytes(report), costs);
  if (ceiling.seconds <= 0) return {};
  const double seconds = longest_reading_seconds(report);
  ceiling.seconds /= node_count(report);
  if (reads_in_place(report)) {
    ceiling.name += " into new memory";
    ceiling.seconds += seconds_at(own_bytes(report), costs.first_touch);
  }
  return reached(Phase::read, ceiling.name, total(report, &RankReport::read_bytes), seconds,
                 ceiling.seconds);
}

/// Data is copied onto the device while other data is read.
std::optional<Reached> reached_by_staging(const Report& report, const Costs& costs) {
  const double bytes = total(report, &RankReport::read_bytes);
  const double busy = sum(report, [](const RankReport& rank) { return rank.read_busy_seconds; });
  return reached(Phase::h2d, "host to device", bytes, busy,
                 seconds_at(bytes, costs.host_to_device));
}

/// On the host only: with a GPU, packing takes place during the exchange. What is not received is
/// packed into new memory, unless it is read to there.
std::optional<Reached> reached_by_packing(const Report& report, const Costs& costs) {
  if (!is_on_host(report) || reads_in_place(report) || costs.pack <= 0) return {};
  const auto ranks = static_cast<double>(report.ranks.size());
  const double bytes = total(report, &RankReport::read_bytes) / ranks;
  return reached(Phase::pack, "packing into new memory", bytes, seconds_in(report, Phase::pack),
                 bytes / costs.pack + seconds_at(own_bytes(report), costs.first_touch));
}

std::optional<Reached> reached_by_exchange(const Report& report, const Costs& costs) {
  if (costs.exchange <= 0) return {};
  const bool on_host = is_on_host(report);
  const auto ranks = static_cast<double>(report.ranks.size());
  const double sent = total(report, &RankReport::sent_bytes) / ranks;
  const double received = total(report, &RankReport::received_bytes) / ranks;
  const double touched = on_host ? seconds_at(received, costs.first_touch) : 0;
  return reached(Phase::exchange, on_host ? "the exchange into new memory" : "the exchange", sent,
                 seconds_in(report, Phase::exchange), sent / costs.exchange + touched);
}

}  // namespace

Bottleneck bottleneck(const Report& report) {
  Bottleneck found;
  for (std::size_t i = 0; i < phase_count; ++i) {
    const auto phase = static_cast<Phase>(i);
    if (phase == Phase::verify) continue;
    double seconds = seconds_in(report, phase);
    found.total_seconds += seconds;
    // In the exchange, all wait for the rank that reads longest.
    if (phase == Phase::read) seconds = longest_reading_seconds(report);
    if (seconds > found.seconds) {
      found.phase = phase;
      found.seconds = seconds;
    }
  }
  return found;
}

void add_ceilings(Report& report, const KeptProbe& probe) {
  Ceilings ceilings{probe.path, probe.date, {}};
  for (const auto& step :
       {reached_by_reading(report, probe.costs), reached_by_staging(report, probe.costs),
        reached_by_packing(report, probe.costs), reached_by_exchange(report, probe.costs)}) {
    if (step) ceilings.steps.push_back(*step);
  }
  report.ceilings = std::move(ceilings);
}

}  // namespace safeshuffle
