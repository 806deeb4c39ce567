#include "plan/estimate.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/arithmetic.hpp"

namespace safeshuffle::plan {
namespace {

// Opening a file of which the page cache has all, identifying and closing it: once to find out what
// is cached, and once to read it.
constexpr double seconds_per_file = 20e-6;

double seconds_for(double bytes, double rate) {
  return rate > 0 ? bytes / rate : 0;
}

// Stored bytes that each rank of a replica keeps of tensors that are sliced.
std::vector<double> kept_bytes(const Schedule& schedule, const Geometries& geometries) {
  std::vector<double> kept(schedule.replica_size);
  std::vector<RankRun> runs;
  for (std::size_t i = 0; i < geometries.example.size(); ++i) {
    if (geometries.tensors[i] == 0 || !schedule.sliced[geometries.example[i]]) continue;
    rank_runs(schedule, geometries.example[i], runs);
    const std::uint64_t rows = schedule.cuts[geometries.example[i]].rows;
    for (const RankRun& run : runs) {
      const auto bytes = static_cast<double>(geometries.tensors[i] * rows * run.row_bytes);
      for (std::uint32_t shard = run.first; shard < run.end; ++shard) kept[shard] += bytes;
    }
  }
  return kept;
}

class Estimate {
 public:
  Estimate(const Schedule& schedule, const Geometries& geometries, const Site& site)
      : schedule_(schedule),
        site_(site),
        costs_(with_defaults(site.costs, site.device)),
        nodes_(nodes_of(schedule, site)),
        kept_(kept_bytes(schedule, geometries)) {}

  double seconds() const {
    double slowest = 0;
    for (const Node& node : nodes_) {
      for (const RankSummary& rank : node.ranks) {
        slowest = std::max({slowest, seconds_of(rank, node),
                            seconds_for(cold_bytes(rank), costs_.read_cold_direct_rank)});
      }
      slowest = std::max(slowest, seconds_for(cold_bytes(node), costs_.read_cold_direct_node));
    }
    return slowest + schedule_.waves * costs_.wave_seconds;
  }

 private:
  struct Node {
    std::span<const RankSummary> ranks;
    std::uint32_t readers = 0;  // of its ranks
  };

  static std::vector<Node> nodes_of(const Schedule& schedule, const Site& site) {
    const std::span<const RankSummary> ranks(schedule.ranks);
    const std::size_t per_node = core::ceil_div(ranks.size(), site.nodes);
    std::vector<Node> nodes;
    for (std::size_t first = 0; first < ranks.size(); first += per_node) {
      Node node{ranks.subspan(first, std::min(per_node, ranks.size() - first))};
      node.readers = static_cast<std::uint32_t>(std::ranges::count_if(
          node.ranks, [](const RankSummary& rank) { return rank.read_bytes != 0; }));
      nodes.push_back(node);
    }
    return nodes;
  }

  bool on_gpus() const { return site_.device == DeviceKind::cuda; }

  double cold_bytes(const RankSummary& rank) const {
    return (1 - site_.cached_share) * static_cast<double>(rank.read_bytes);
  }

  double cold_bytes(const Node& node) const {
    double bytes = 0;
    for (const RankSummary& rank : node.ranks) bytes += cold_bytes(rank);
    return bytes;
  }

  // The host packs slices straight from the page cache, and passes over what it does not keep.
  double cached_bytes(const RankSummary& rank) const {
    const auto read = static_cast<double>(rank.read_bytes);
    const double passed_over = on_gpus() ? 0
                                         : static_cast<double>(rank.sliced_bytes) -
                                               kept_[shard_index(schedule_, rank.rank)];
    return site_.cached_share * (read - passed_over);
  }

  // Of one rank, while all others that read do so as well.
  double warm_rate(const Node& node) const {
    return std::min(costs_.read_warm_rank, costs_.read_warm_node / std::max(node.readers, 1U));
  }

  // Of all but storage.
  double seconds_of(const RankSummary& rank, const Node& node) const {
    const auto read = static_cast<double>(rank.read_bytes);
    const double cached = seconds_for(cached_bytes(rank), warm_rate(node));
    const double exchange = seconds_for(
        static_cast<double>(std::max(rank.sent_bytes, rank.received_bytes)), costs_.exchange);
    if (on_gpus()) {
      return std::max({cached, seconds_for(read, costs_.host_to_device),
                       seconds_for(read, costs_.pack) + exchange});
    }
    // What is cached is packed as it is read.
    const double opening = seconds_per_file * static_cast<double>(rank.files.size());
    return opening + cached + seconds_for(cold_bytes(rank), costs_.pack) + exchange +
           seconds_for(static_cast<double>(rank.kept_bytes), costs_.first_touch);
  }

  const Schedule& schedule_;
  const Site& site_;
  const Costs costs_;
  const std::vector<Node> nodes_;
  const std::vector<double> kept_;  // by shard
};

}  // namespace

double estimate_seconds(const Schedule& schedule, const Geometries& geometries, const Site& site) {
  return Estimate(schedule, geometries, site).seconds();
}

}  // namespace safeshuffle::plan
