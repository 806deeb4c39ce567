#include "safeshuffle/target.hpp"

#include <cstddef>
#include <utility>

#include "core/tensor_bytes.hpp"

namespace safeshuffle {
namespace {

TargetCount& count_of(PlacementSummary& summary, Placement::Kind kind) {
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

std::vector<Target> stored_targets(std::vector<Placement> placements) {
  std::vector<Target> targets;
  targets.reserve(placements.size());
  for (std::size_t i = 0; i < placements.size(); ++i) {
    targets.push_back({static_cast<std::uint32_t>(i), std::move(placements[i]), nullptr});
  }
  return targets;
}

const std::string& name_of(const Target& target, const Catalog& catalog) noexcept {
  return target.composition ? target.composition->name : catalog.tensors()[target.tensor].name;
}

const Shape& shape_of(const Target& target, const Catalog& catalog) noexcept {
  return target.composition ? target.composition->shape : catalog.tensors()[target.tensor].shape;
}

PlacementSummary summarize(const Catalog& catalog, const std::vector<Target>& targets) {
  PlacementSummary summary;
  for (const Target& target : targets) {
    TargetCount& count = count_of(summary, target.placement.kind);
    ++count.tensors;
    const TensorInfo& tensor = catalog.tensors()[target.tensor];
    count.bytes += target.composition ? core::tensor_bytes(target.composition->shape, tensor.dtype)
                                      : tensor.bytes;
  }
  return summary;
}

}  // namespace safeshuffle
