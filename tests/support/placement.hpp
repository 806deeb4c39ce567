// Helpers to create tensors and examine placements.
#pragma once

#include <string>
#include <vector>

#include "safeshuffle/placement.hpp"

namespace safeshuffle::testing {

inline TensorInfo tensor(std::string name, Shape shape) {
  TensorInfo info;
  info.name = std::move(name);
  info.dtype = DType::BF16;
  info.shape = std::move(shape);
  return info;
}

/// What `rank` of `world` holds of a tensor.
inline Shape shard(const TpPlan& plan, const TensorInfo& info, std::uint32_t rank,
                   std::uint32_t world) {
  return shard_shape(info.shape, plan.place(info, world), rank, world);
}

/// The intervals `rank` of `world` keeps of a tensor; the plan must cut it.
inline std::vector<Interval> kept(const TpPlan& plan, const TensorInfo& info, std::uint32_t rank,
                                  std::uint32_t world) {
  const Placement placement = plan.place(info, world);
  std::vector<Interval> intervals;
  append_intervals(placement.split, info.shape.at(placement.split.axis), rank, world, intervals);
  return intervals;
}

}  // namespace safeshuffle::testing
