#include "plan/tensor_cost.hpp"

#include <algorithm>
#include <cstddef>

#include "plan/cut.hpp"
#include "plan/rates.hpp"
#include "plan/segments.hpp"
#include "plan/waves.hpp"

namespace safeshuffle::plan {
namespace {

// Reading less from a disk takes about as long.
constexpr double smallest_slice = 256 << 10;

// What all ranks together do for one tensor, in bytes.
struct Work {
  double read = 0;
  double read_if_cached = 0;  // on the host, of what is kept only, but with run_overhead
  double received = 0;
  double waves = 0;
};

// What one rank, or storage for it, takes for one tensor, on average.
struct Seconds {
  double storage = 0;
  double ranks = 0;  // all else; storage works beside it
};

class TensorCost {
 public:
  TensorCost(const Schedule& schedule, const Site& site)
      : schedule_(schedule), site_(site), rates_(site) {}

  bool prefers_slices(std::uint32_t tensor) {
    sum_up(tensor);
    if (!are_read_well(bytes_of(tensor))) return false;
    const Seconds sliced = seconds(tensor, in_slices_);
    const Seconds exchanged = seconds(tensor, once_);
    // If storage takes longest either way, what ranks take still decides: of other tensors, it may
    // take longer than storage does.
    const double unnoticed = std::max((1 + tolerance) * exchanged.storage, exchanged.ranks);
    return sliced.ranks < exchanged.ranks && sliced.storage <= unnoticed;
  }

 private:
  double bytes_of(std::uint32_t tensor) const {
    return static_cast<double>(schedule_.catalog.tensors()[tensor].bytes);
  }

  void sum_up(std::uint32_t tensor) {
    const double bytes = bytes_of(tensor);
    once_ = {bytes, bytes, 0, bytes / schedule_.world / static_cast<double>(schedule_.window)};
    in_slices_ = {0, 0, 0, waves_of_slices(tensor)};
    storage_bytes_ = 0;
    rank_runs(schedule_, tensor, runs_);
    for (const RankRun& run : runs_) add_run(tensor, run);
    if (!rates_.on_gpus()) return;
    once_.read_if_cached = once_.read;
    in_slices_.read_if_cached = in_slices_.read;
  }

  void add_run(std::uint32_t tensor, const RankRun& run) {
    const double in_replica = run.end - run.first;
    const double in_all = in_replica * schedule_.replicas;
    const auto overhead = static_cast<double>(run_overhead(schedule_, tensor, run, columns_));
    const auto kept = static_cast<double>(schedule_.cuts[tensor].rows * run.row_bytes);
    in_slices_.read_if_cached += in_all * (kept + overhead);
    // A reader packs what its own replica keeps.
    once_.read_if_cached += in_replica * overhead;
    const double from_others = static_cast<double>(schedule_.world - 1) / schedule_.world;
    once_.received += in_all * static_cast<double>(run.share_bytes) * from_others;
    if (is_replicated(schedule_, tensor)) {
      add_slices(tensor, run.first, in_all);
    } else {
      for (std::uint32_t rank = run.first; rank < run.end; ++rank) {
        add_slices(tensor, rank, schedule_.replicas);
      }
    }
  }

  // Of so many ranks that read the same as `rank`.
  void add_slices(std::uint32_t tensor, std::uint32_t rank, double ranks) {
    const auto bytes = static_cast<double>(slice_bytes(schedule_, tensor, rank, columns_));
    const auto lines =
        static_cast<double>(Segments(schedule_.cuts[tensor], schedule_.window).lines());
    in_slices_.read += ranks * bytes;
    storage_bytes_ +=
        ranks * std::max(bytes, lines * std::max(smallest_slice, rates_.bytes_per_request()));
  }

  // As number_waves counts them: whole tensors share a wave, whatever of them ranks read.
  double waves_of_slices(std::uint32_t tensor) const {
    const double windows = bytes_of(tensor) / static_cast<double>(schedule_.window);
    return windows <= 1 ? windows : static_cast<double>(slice_waves(schedule_, tensor));
  }

  // Whether, from storage, slices read hardly more than the tensor has.
  bool are_read_well(double bytes) const {
    // What is in the page cache of one node says nothing about the others.
    const double cached = site_.nodes == 1 ? site_.cached_share : 0;
    return (1 - cached) * (storage_bytes_ - bytes) <= tolerance * bytes;
  }

  double read_seconds(double bytes, const ReadRate& rate) const {
    return std::max(seconds_for(bytes / schedule_.world, rate.rank),
                    seconds_for(bytes / site_.nodes, rate.node));
  }

  Seconds seconds(std::uint32_t tensor, const Work& work) const {
    const Costs& costs = rates_.costs();
    const double cold = (1 - site_.cached_share) * work.read;
    const double cached = read_seconds(site_.cached_share * work.read_if_cached, rates_.cached());
    const double read = work.read / schedule_.world;
    // On the host, what is cached is packed as it is read.
    const double packed = rates_.on_gpus() ? read : cold / schedule_.world;
    const bool converts = schedule_.catalog.tensors()[tensor].dtype != schedule_.dtypes[tensor];
    const double exchange = seconds_for(work.received / schedule_.world, costs.exchange);
    return {read_seconds(cold, rates_.cold()),
            rates_.together(cached, seconds_for(read, costs.host_to_device),
                            rates_.pack_seconds(packed, converts ? 1 : 0), exchange) +
                work.waves * costs.wave_seconds};
  }

  const Schedule& schedule_;
  const Site& site_;
  const Rates rates_;
  Work once_;
  Work in_slices_;
  double storage_bytes_ = 0;  // as many as storage reads in the time that it takes for the slices
  std::vector<RankRun> runs_;
  RankColumns columns_;
};

}  // namespace

std::vector<bool> sliced_by_cost(const Schedule& schedule, const Geometries& geometries,
                                 const Site& site) {
  TensorCost cost(schedule, site);
  std::vector<bool> sliced(geometries.example.size());
  for (std::size_t i = 0; i < sliced.size(); ++i) {
    sliced[i] = geometries.tensors[i] != 0 && cost.prefers_slices(geometries.example[i]);
  }
  return sliced;
}

}  // namespace safeshuffle::plan
