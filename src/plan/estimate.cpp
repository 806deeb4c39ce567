#include "plan/estimate.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/arithmetic.hpp"

namespace safeshuffle::plan {
namespace {

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

// Of the bytes of all tensors, those whose element type changes.
double converted_share(const Schedule& schedule, const Geometries& geometries) {
  double all = 0;
  double converted = 0;
  for (std::size_t i = 0; i < geometries.example.size(); ++i) {
    const TensorInfo& tensor = schedule.catalog.tensors()[geometries.example[i]];
    const double bytes = static_cast<double>(geometries.tensors[i] * tensor.bytes);
    all += bytes;
    if (tensor.dtype != schedule.dtypes[geometries.example[i]]) converted += bytes;
  }
  return all > 0 ? converted / all : 0;
}

class Estimate {
 public:
  Estimate(const Schedule& schedule, const Geometries& geometries, const Site& site)
      : schedule_(schedule),
        site_(site),
        costs_(with_defaults(site.costs, site.device)),
        cold_rate_(cold_rate(site, costs_)),
        nodes_(nodes_of(schedule, site)),
        kept_(kept_bytes(schedule, geometries)),
        converted_(converted_share(schedule, geometries)) {}

  StepSeconds seconds() const {
    StepSeconds longest;
    for (const Node& node : nodes_) {
      for (const RankSummary& rank : node.ranks) take_longest(seconds_of(rank, node), longest);
      const double storage = seconds_for(cold_bytes(node), cold_rate_.node);
      take_longest({.read = storage, .total = storage}, longest);
    }
    longest.waves = schedule_.waves * costs_.wave_seconds;
    longest.total += longest.waves;
    return longest;
  }

 private:
  struct Node {
    std::span<const RankSummary> ranks;
    std::uint32_t readers = 0;  // of its ranks
  };

  /// Of reading what is not in the page cache: one rank alone, and all ranks of a node.
  struct ColdRate {
    double rank = 0;
    double node = 0;
  };

  static ColdRate cold_rate(const Site& site, const Costs& costs) {
    return site.reads_directly
               ? ColdRate{costs.read_cold_direct_rank, costs.read_cold_direct_node}
               : ColdRate{costs.read_cold_buffered_rank, costs.read_cold_buffered_node};
  }

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

  static void take_longest(const StepSeconds& seconds, StepSeconds& longest) {
    for (double StepSeconds::*step :
         {&StepSeconds::open, &StepSeconds::allocate, &StepSeconds::read,
          &StepSeconds::host_to_device, &StepSeconds::pack, &StepSeconds::exchange,
          &StepSeconds::total}) {
      longest.*step = std::max(longest.*step, seconds.*step);
    }
  }

  // What is converted takes longer to pack, by the share of it in all tensors.
  double pack_seconds(double bytes) const {
    return (1 - converted_) * seconds_for(bytes, costs_.pack) +
           converted_ * seconds_for(bytes, costs_.pack_convert);
  }

  StepSeconds seconds_of(const RankSummary& rank, const Node& node) const {
    const double cached = seconds_for(cached_bytes(rank), warm_rate(node));
    const double cold = seconds_for(cold_bytes(rank), cold_rate_.rank);
    StepSeconds seconds;
    seconds.open = seconds_per_file * static_cast<double>(rank.files.size());
    seconds.read = cold + cached;
    seconds.exchange = seconds_for(
        static_cast<double>(std::max(rank.sent_bytes, rank.received_bytes)), costs_.exchange);
    if (on_gpus()) {
      const auto read = static_cast<double>(rank.read_bytes);
      seconds.host_to_device = seconds_for(read, costs_.host_to_device);
      seconds.pack = pack_seconds(read);
      seconds.total = seconds.open + std::max({cold, cached, seconds.host_to_device,
                                               seconds.pack + seconds.exchange});
      return seconds;
    }
    // What is cached is packed as it is read.
    seconds.pack = pack_seconds(cold_bytes(rank));
    seconds.allocate = seconds_for(static_cast<double>(rank.kept_bytes), costs_.first_touch);
    seconds.total =
        std::max(cold, seconds.open + cached + seconds.pack + seconds.exchange + seconds.allocate);
    return seconds;
  }

  const Schedule& schedule_;
  const Site& site_;
  const Costs costs_;
  const ColdRate cold_rate_;
  const std::vector<Node> nodes_;
  const std::vector<double> kept_;  // by shard
  const double converted_;
};

}  // namespace

StepSeconds estimate(const Schedule& schedule, const Geometries& geometries, const Site& site) {
  return Estimate(schedule, geometries, site).seconds();
}

}  // namespace safeshuffle::plan
