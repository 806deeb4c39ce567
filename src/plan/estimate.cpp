#include "plan/estimate.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "safeshuffle/prediction.hpp"

#include "core/arithmetic.hpp"
#include "plan/rates.hpp"
#include "plan/segments.hpp"

namespace safeshuffle {
namespace plan {
namespace {

// Of one core: finding and opening a file that the page cache has, reading its header and closing
// it (measured with 10,000 files).
constexpr double seconds_per_file = 40e-6;

/// What reading takes longer than for the bytes that a rank reads, as bytes.
struct ReadDetails {
  /// By shard: of tensors that are sliced, what it keeps, and what packing straight from the page
  /// cache reads besides.
  std::vector<double> cached_slices;
  double cached_overhead = 0;   ///< of all other tensors, by all readers
  std::vector<double> waiting;  ///< by shard, for a server that is asked for small slices
};

ReadDetails read_details(const Schedule& schedule, const Geometries& geometries,
                         double bytes_per_request) {
  const std::vector<double> none(schedule.replica_size);
  ReadDetails reads{none, 0, none};
  std::vector<RankRun> runs;
  RankColumns columns;
  for (std::size_t i = 0; i < geometries.example.size(); ++i) {
    const std::uint32_t tensor = geometries.example[i];
    if (geometries.tensors[i] == 0) continue;
    rank_runs(schedule, tensor, runs);
    for (const RankRun& run : runs) {
      const std::uint64_t bytes = schedule.cuts[tensor].rows * run.row_bytes;
      const std::uint64_t overhead = run_overhead(schedule, tensor, run, columns);
      const auto of_all = [&](std::uint64_t of_one) {
        return static_cast<double>(geometries.tensors[i] * of_one);
      };
      if (!schedule.sliced[tensor]) {
        reads.cached_overhead += of_all(overhead) * (run.end - run.first);
        continue;
      }
      const std::uint64_t requests =
          bytes == 0 ? 0 : Segments(schedule.cuts[tensor], schedule.window).lines();
      const double waited = static_cast<double>(requests) * bytes_per_request;
      for (std::uint32_t shard = run.first; shard < run.end; ++shard) {
        reads.cached_slices[shard] += of_all(bytes + overhead);
        reads.waiting[shard] += std::max(0.0, of_all(1) * waited - of_all(bytes));
      }
    }
  }
  return reads;
}

double read_for_exchange(const RankSummary& rank) {
  return static_cast<double>(rank.read_bytes - rank.sliced_bytes);
}

double read_for_exchange_by_all(const Schedule& schedule) {
  double bytes = 0;
  for (const RankSummary& rank : schedule.ranks) bytes += read_for_exchange(rank);
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
        rates_(site),
        nodes_(nodes_of(schedule, site)),
        reads_(read_details(schedule, geometries, rates_.bytes_per_request())),
        exchanged_(read_for_exchange_by_all(schedule)),
        converted_(converted_share(schedule, geometries)) {}

  StepSeconds seconds() const {
    StepSeconds longest;
    for (const Node& node : nodes_) {
      const NodeSeconds together{
          seconds_for(bytes_of_node(node, &Estimate::cold_bytes), rates_.cold().node),
          seconds_for(bytes_of_node(node, &Estimate::cached_bytes), rates_.cached().node)};
      for (const RankSummary& rank : node) take_longest(seconds_of(rank, together), longest);
    }
    return longest;
  }

 private:
  using Node = std::span<const RankSummary>;

  /// The least time in which all ranks of a node read what they read.
  struct NodeSeconds {
    double cold = 0;
    double cached = 0;
  };

  static std::vector<Node> nodes_of(const Schedule& schedule, const Site& site) {
    const std::span<const RankSummary> ranks(schedule.ranks);
    const std::size_t per_node = core::ceil_div(ranks.size(), site.nodes);
    std::vector<Node> nodes;
    for (std::size_t first = 0; first < ranks.size(); first += per_node) {
      nodes.push_back(ranks.subspan(first, std::min(per_node, ranks.size() - first)));
    }
    return nodes;
  }

  double cold_bytes(const RankSummary& rank) const {
    return (1 - site_.cached_share) * static_cast<double>(rank.read_bytes);
  }

  double bytes_of_node(Node node, double (Estimate::*of_rank)(const RankSummary&) const) const {
    double bytes = 0;
    for (const RankSummary& rank : node) bytes += (this->*of_rank)(rank);
    return bytes;
  }

  // The host packs straight from the page cache, and passes over what it does not keep of slices.
  double cached_bytes(const RankSummary& rank) const {
    if (rates_.on_gpus()) return site_.cached_share * static_cast<double>(rank.read_bytes);
    const double exchanged = read_for_exchange(rank);
    const double overhead = exchanged > 0 ? reads_.cached_overhead * exchanged / exchanged_ : 0;
    return site_.cached_share *
           (exchanged + overhead + reads_.cached_slices[shard_index(schedule_, rank.rank)]);
  }

  // Seconds that storage takes. Rates of reading are of requests in a row, so the first one's time
  // comes on top.
  double cold_seconds(const RankSummary& rank, double of_node) const {
    const double bytes = cold_bytes(rank);
    if (bytes <= 0) return 0;
    const double waiting =
        (1 - site_.cached_share) * reads_.waiting[shard_index(schedule_, rank.rank)];
    return rates_.costs().request_seconds +
           std::max(seconds_for(bytes + waiting, rates_.cold().rank), of_node);
  }

  static void take_longest(const StepSeconds& seconds, StepSeconds& longest) {
    for (double StepSeconds::*step :
         {&StepSeconds::open, &StepSeconds::allocate, &StepSeconds::read,
          &StepSeconds::host_to_device, &StepSeconds::pack, &StepSeconds::exchange,
          &StepSeconds::waves, &StepSeconds::total}) {
      longest.*step = std::max(longest.*step, seconds.*step);
    }
  }

  StepSeconds seconds_of(const RankSummary& rank, const NodeSeconds& node) const {
    const Costs& costs = rates_.costs();
    const double own = seconds_for(cached_bytes(rank), rates_.cached().rank);
    const double cached = own > 0 ? std::max(own, node.cached) : 0;
    const double cold = cold_seconds(rank, node.cold);
    const auto read = static_cast<double>(rank.read_bytes);
    // On the host, what is cached is packed as it is read.
    const double packed = rates_.on_gpus() ? read : cold_bytes(rank);
    StepSeconds seconds;
    seconds.open = seconds_per_file * static_cast<double>(rank.files.size());
    seconds.read = std::max(cold, cached);
    seconds.host_to_device = rates_.on_gpus() ? seconds_for(read, costs.host_to_device) : 0;
    seconds.pack = rates_.pack_seconds(packed, converted_);
    seconds.exchange = seconds_for(
        static_cast<double>(std::max(rank.sent_bytes, rank.received_bytes)), costs.exchange);
    seconds.waves = schedule_.waves * costs.wave_seconds;
    const double beside_storage =
        rates_.together(cached, seconds.host_to_device, seconds.pack, seconds.exchange) +
        seconds.waves;
    if (rates_.on_gpus()) {
      seconds.total = seconds.open + std::max(cold, beside_storage);
      return seconds;
    }
    seconds.allocate = seconds_for(static_cast<double>(rank.kept_bytes), costs.first_touch);
    seconds.total = std::max(cold, seconds.open + beside_storage + seconds.allocate);
    return seconds;
  }

  const Schedule& schedule_;
  const Site& site_;
  const Rates rates_;
  const std::vector<Node> nodes_;
  const ReadDetails reads_;
  const double exchanged_;  // bytes that all ranks read of what is exchanged
  const double converted_;
};

}  // namespace

StepSeconds estimate(const Schedule& schedule, const Geometries& geometries, const Site& site) {
  return Estimate(schedule, geometries, site).seconds();
}

}  // namespace plan

StepSeconds predict(const Plan& plan, const Site& site) {
  const plan::Schedule& schedule = plan.schedule();
  return plan::estimate(schedule, plan::find_geometries(schedule), site);
}

}  // namespace safeshuffle
