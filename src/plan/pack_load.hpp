// How much of their readers' pack buffers the segments of one geometry take.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace safeshuffle::plan {

/// By representative segment (see representative_segments): the aligned bytes of the runs to all
/// ranks. A reader packs those for the others.
class PackLoad {
 public:
  explicit PackLoad(std::size_t segments) : loads_(segments) {
    for (std::size_t i = 0; i < segments; ++i) loads_[i].segment = i;
  }

  void add(std::size_t segment, std::uint64_t aligned_bytes) {
    loads_[segment].bytes += aligned_bytes;
  }

  /// Call once, after the last `add`.
  void sort() {
    std::sort(loads_.begin(), loads_.end(),
              [](const Load& a, const Load& b) { return a.bytes > b.bytes; });
  }

  /// The most that any segment takes at a reader that needs own(segment) aligned bytes less,
  /// because it keeps them itself. Usually examines a few segments only: the largest one of which
  /// the reader keeps nothing ends the search.
  template <class Own>
  std::uint64_t most(Own own) const {
    std::uint64_t most = 0;
    for (const Load& load : loads_) {
      if (load.bytes <= most) break;
      most = std::max(most, load.bytes - own(load.segment));
    }
    return most;
  }

 private:
  struct Load {
    std::size_t segment = 0;
    std::uint64_t bytes = 0;
  };
  std::vector<Load> loads_;
};

}  // namespace safeshuffle::plan
