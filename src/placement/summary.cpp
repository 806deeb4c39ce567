#include <cstddef>

#include "safeshuffle/placement.hpp"

namespace safeshuffle {
namespace {

TensorCount& count_of(PlacementSummary& summary, Placement::Kind kind) {
  switch (kind) {
    case Placement::Kind::sharded:
      return summary.partitioned;
    case Placement::Kind::single:
      return summary.single;
    case Placement::Kind::dropped:
      return summary.dropped;
    case Placement::Kind::replicated:
      break;
  }
  return summary.replicated;
}

}  // namespace

PlacementSummary summarize(const Catalog& catalog, const std::vector<Placement>& placements) {
  PlacementSummary summary;
  for (std::size_t i = 0; i < placements.size(); ++i) {
    TensorCount& count = count_of(summary, placements[i].kind);
    ++count.tensors;
    count.bytes += catalog.tensors()[i].bytes;
  }
  return summary;
}

}  // namespace safeshuffle
