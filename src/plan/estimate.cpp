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

/// What packing straight from the page cache reads, in bytes; cached_overhead included.
struct CachedReads {
  std::vector<double> sliced;     ///< by shard: of tensors that are sliced, what it keeps
  double exchanged_overhead = 0;  ///< of all others, by all readers
};

CachedReads cached_reads(const Schedule& schedule, const Geometries& geometries) {
  CachedReads reads{std::vector<double>(schedule.replica_size)};
  std::vector<RankRun> runs;
  RankColumns columns;
  for (std::size_t i = 0; i < geometries.example.size(); ++i) {
    const std::uint32_t tensor = geometries.example[i];
    if (geometries.tensors[i] == 0) continue;
    const Cut& cut = schedule.cuts[tensor];
    rank_runs(schedule, tensor, runs);
    for (const RankRun& run : runs) {
      columns.assign(schedule, tensor, run.first);
      const std::uint64_t bytes = cut.rows * run.row_bytes;
      const std::uint64_t overhead = cached_overhead(cut, columns, bytes);
      const auto of_all = [&](std::uint64_t of_one) {
        return static_cast<double>(geometries.tensors[i] * of_one);
      };
      if (!schedule.sliced[tensor]) {
        reads.exchanged_overhead += of_all(overhead) * (run.end - run.first);
        continue;
      }
      for (std::uint32_t shard = run.first; shard < run.end; ++shard) {
        reads.sliced[shard] += of_all(bytes + overhead);
      }
    }
  }
  return reads;
}

double exchanged_bytes(const RankSummary& rank) {
  return static_cast<double>(rank.read_bytes - rank.sliced_bytes);
}

// Of all ranks.
double exchanged_bytes(const Schedule& schedule) {
  double bytes = 0;
  for (const RankSummary& rank : schedule.ranks) bytes += exchanged_bytes(rank);
  return bytes;
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
        cached_(cached_reads(schedule, geometries)),
        exchanged_(exchanged_bytes(schedule)),
        converted_(converted_share(schedule, geometries)) {}

  StepSeconds seconds() const {
    StepSeconds longest;
    for (const Node& node : nodes_) {
      const double cached = seconds_for(sum(node, &Estimate::cached_bytes), costs_.read_warm_node);
      for (const RankSummary& rank : node) take_longest(seconds_of(rank, cached), longest);
      const double storage = seconds_for(sum(node, &Estimate::cold_bytes), cold_rate_.node);
      take_longest({.read = storage, .total = storage}, longest);
    }
    longest.waves = schedule_.waves * costs_.wave_seconds;
    longest.total += longest.waves;
    return longest;
  }

 private:
  using Node = std::span<const RankSummary>;

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
      nodes.push_back(ranks.subspan(first, std::min(per_node, ranks.size() - first)));
    }
    return nodes;
  }

  bool on_gpus() const { return site_.device == DeviceKind::cuda; }

  double cold_bytes(const RankSummary& rank) const {
    return (1 - site_.cached_share) * static_cast<double>(rank.read_bytes);
  }

  double sum(Node node, double (Estimate::*bytes)(const RankSummary&) const) const {
    double sum = 0;
    for (const RankSummary& rank : node) sum += (this->*bytes)(rank);
    return sum;
  }

  // The host packs straight from the page cache, and passes over what it does not keep of slices.
  double cached_bytes(const RankSummary& rank) const {
    if (on_gpus()) return site_.cached_share * static_cast<double>(rank.read_bytes);
    const double exchanged = exchanged_bytes(rank);
    const double overhead = exchanged > 0 ? cached_.exchanged_overhead * exchanged / exchanged_ : 0;
    return site_.cached_share *
           (exchanged + overhead + cached_.sliced[shard_index(schedule_, rank.rank)]);
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

  // `cached_by_node`: the least time in which all ranks of the node read what is cached.
  StepSeconds seconds_of(const RankSummary& rank, double cached_by_node) const {
    const double alone = seconds_for(cached_bytes(rank), costs_.read_warm_rank);
    const double cached = rank.read_bytes == 0 ? 0 : std::max(alone, cached_by_node);
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
  const CachedReads cached_;
  const double exchanged_;  // bytes that all ranks read of what is exchanged
  const double converted_;
};

}  // namespace

StepSeconds estimate(const Schedule& schedule, const Geometries& geometries, const Site& site) {
  return Estimate(schedule, geometries, site).seconds();
}

}  // namespace safeshuffle::plan
