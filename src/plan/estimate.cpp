#include "plan/estimate.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace safeshuffle::plan {
namespace {

double seconds_for(double bytes, double rate) {
  return rate > 0 ? bytes / rate : 0;
}

// Stored bytes that each rank of a replica keeps.
std::vector<double> kept_bytes(const Schedule& schedule, const Geometries& geometries) {
  std::vector<double> kept(schedule.replica_size);
  std::vector<RankRun> runs;
  for (std::size_t i = 0; i < geometries.example.size(); ++i) {
    if (geometries.tensors[i] == 0) continue;
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
        warm_rate_(
            std::min(costs_.read_warm_rank, costs_.read_warm_node * site.nodes / schedule.world)) {
    // The host packs slices straight from the page cache, and passes over what it does not keep.
    if (is_sliced(schedule) && !on_gpus()) kept_ = kept_bytes(schedule, geometries);
  }

  double seconds() const {
    double slowest = 0;
    double storage = 0;
    double stored = 0;
    for (const RankSummary& rank : schedule_.ranks) {
      slowest = std::max(slowest, seconds_of(rank));
      stored += cold_bytes(rank);
      storage = std::max(storage, seconds_for(cold_bytes(rank), costs_.read_cold_direct_rank));
    }
    storage = std::max(storage, seconds_for(stored / site_.nodes, costs_.read_cold_direct_node));
    return std::max(slowest, storage) + schedule_.waves * costs_.wave_seconds;
  }

 private:
  bool on_gpus() const { return site_.device == DeviceKind::cuda; }

  double cold_bytes(const RankSummary& rank) const {
    return (1 - site_.cached_share) * static_cast<double>(rank.read_bytes);
  }

  double cached_bytes(const RankSummary& rank) const {
    const double read = kept_.empty() ? static_cast<double>(rank.read_bytes)
                                      : kept_[shard_index(schedule_, rank.rank)];
    return site_.cached_share * read;
  }

  // Of all but storage.
  double seconds_of(const RankSummary& rank) const {
    const auto read = static_cast<double>(rank.read_bytes);
    const double cached = seconds_for(cached_bytes(rank), warm_rate_);
    const double exchange = seconds_for(
        static_cast<double>(std::max(rank.sent_bytes, rank.received_bytes)), costs_.exchange);
    if (on_gpus()) {
      return std::max({cached, seconds_for(read, costs_.host_to_device),
                       seconds_for(read, costs_.pack) + exchange});
    }
    // What is cached is packed as it is read.
    return cached + seconds_for(cold_bytes(rank), costs_.pack) + exchange +
           seconds_for(static_cast<double>(rank.kept_bytes), costs_.first_touch);
  }

  const Schedule& schedule_;
  const Site& site_;
  const Costs costs_;
  const double warm_rate_;
  std::vector<double> kept_;  // by shard, where that is what is read
};

}  // namespace

double estimate_seconds(const Schedule& schedule, const Geometries& geometries, const Site& site) {
  return Estimate(schedule, geometries, site).seconds();
}

}  // namespace safeshuffle::plan
