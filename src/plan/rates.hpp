// The rates of a site, and how the steps of a load add up there.
#pragma once

#include "safeshuffle/costs.hpp"
#include "safeshuffle/options.hpp"

namespace safeshuffle::plan {

/// 0 if the rate is not known.
inline double seconds_for(double bytes, double rate) noexcept {
  return rate > 0 ? bytes / rate : 0;
}

/// Of reading, in bytes per second: one rank alone, and all ranks of a node together.
struct ReadRate {
  double rank = 0;
  double node = 0;
};

class Rates {
 public:
  explicit Rates(const Site& site);

  const Costs& costs() const noexcept { return costs_; }

  /// Of what is not in the page cache.
  ReadRate cold() const noexcept;
  /// Fetching less from a server takes about as long; 0 for files.
  double bytes_per_request() const noexcept;

  ReadRate cached() const noexcept { return {costs_.read_warm_rank, costs_.read_warm_node}; }

  bool on_gpus() const noexcept { return device_ == DeviceKind::cuda; }

  /// Of the bytes, `converted_share` change their element type, which takes longer.
  double pack_seconds(double bytes, double converted_share) const noexcept;

  /// Seconds that a rank takes for these steps together: on the host, they share its cores and
  /// follow one another; on GPUs, reading, copying, and packing with exchanging overlap. Storage
  /// works beside them.
  double together(double cached, double host_to_device, double pack,
                  double exchange) const noexcept;

 private:
  DeviceKind device_;
  bool reads_directly_;
  Costs costs_;  // all of them are known
};

}  // namespace safeshuffle::plan
