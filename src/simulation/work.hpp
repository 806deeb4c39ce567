// What activities of a load take on a machine: by themselves, and of what ranks share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "safeshuffle/prediction.hpp"

#include "simulation/sharing.hpp"
#include "simulation/traffic.hpp"

namespace safeshuffle::simulation {

/// An activity of one rank, in seconds: what it takes if its node does nothing else, and of that,
/// what each shared resource of the node would take if all of it served this activity.
struct Work {
  double alone = 0;
  std::array<double, resource_count> use{};
};

/// Computes it from traffic. Immutable.
class WorkModel {
 public:
  explicit WorkModel(const Cluster& cluster);

  /// Reading into a slab and, on GPUs, copying there at the same time; without what is packed
  /// straight from the page cache. `fresh`: the slab is used for the first time.
  Work read(const Traffic& traffic, bool fresh) const;

  /// After the last chunk was read. GPUs only.
  Work last_copy(const Traffic& traffic) const;

  /// `fresh`: of the pack buffer.
  Work pack(const Traffic& traffic, bool fresh) const;

  Work exchange(const Messages& messages) const;
  Work unpack(const Traffic& traffic) const;

 private:
  void add_cores(double bytes, const CoreRate& rate, Work& work) const;
  void touch(double bytes, Work& work) const;

  const Cluster& cluster_;
  const Costs& costs_;
  const bool on_gpus_;
  const CoreRate pack_;
  const CoreRate convert_;  // what converting takes in addition to packing
  const CoreRate touch_;
  const CoreRate exchange_;
  const CoreRate warm_;
};

}  // namespace safeshuffle::simulation
