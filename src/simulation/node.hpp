// One node of a simulated cluster: what its ranks work on at present, and how fast.
#pragma once

#include <array>
#include <limits>
#include <vector>

#include "safeshuffle/prediction.hpp"

#include "simulation/work.hpp"

namespace safeshuffle::simulation {

/// Something that a rank works on.
struct Activity {
  SimulatedSpan span;                           ///< the end is not known before
  double left = 0;                              ///< seconds that it would take alone
  double speed = 0;                             ///< 1: as if it were alone
  std::array<double, resource_count> demand{};  ///< share of each resource that it uses at speed 1
};

/// Activities that need a resource of which there is not enough are slowed down by the same factor;
/// what they cannot use because of another resource, the others get: max-min fairness of speeds.
/// So two ranks that read get equal shares of a disk, and a step with four threads twice as many
/// cores as one with two. Not thread-safe.
class Node {
 public:
  /// From `now` on; not before the last call. `work` takes some time.
  void start(const SimulatedSpan& span, const Work& work, double now);

  /// When the first activity finishes if nothing else starts; infinity if there is none.
  double next();

  /// Removes those that have finished by `now`, in the order in which they were started.
  std::vector<SimulatedSpan> finish(double now);

  /// Seconds for which each resource would have been busy at its full rate.
  const std::array<double, resource_count>& busy() const noexcept { return busy_; }

 private:
  void advance(double now);
  void share();

  std::vector<Activity> active_;
  std::array<double, resource_count> busy_{};
  double now_ = 0;
  double next_ = std::numeric_limits<double>::infinity();
  bool is_shared_ = true;  // since the last activity started or finished
};

}  // namespace safeshuffle::simulation
