// What a rank must hold of a target, by definition and element by element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "safeshuffle/metadata.hpp"
#include "safeshuffle/target.hpp"

namespace safeshuffle::testing {

/// A tensor as outer × extent × inner bytes, around one axis. Elements of whole bytes only.
struct Grid {
  Grid(const Shape& shape, std::uint32_t axis, DType dtype) : inner(bits(dtype) / 8) {
    for (std::size_t i = 0; i < shape.size(); ++i) {
      (i < axis ? outer : i == axis ? extent : inner) *= shape[i];
    }
  }
  std::uint64_t outer = 1;
  std::uint64_t extent = 1;
  std::uint64_t inner;
};

/// A target before placement. `stored(tensor)`: the bytes of a stored tensor.
template <class Stored>
std::vector<std::byte> whole_target(const Catalog& catalog, const Target& target, Stored stored) {
  if (!target.composition) return stored(target.tensor);
  const Composition& composition = *target.composition;
  const DType dtype = catalog.tensors()[target.tensor].dtype;
  const Grid grid(composition.shape, composition.axis, dtype);
  std::vector<std::byte> bytes(grid.outer * grid.extent * grid.inner);
  for (const Fill& fill : composition.fills) {
    if (fill.tensor == Fill::zeros) continue;
    const std::vector<std::byte> from = stored(fill.tensor);
    const std::uint64_t extent = catalog.tensors()[fill.tensor].shape[composition.axis];
    for (std::uint64_t row = 0; row < grid.outer; ++row) {
      for (std::uint64_t i = 0; i < fill.length * grid.inner; ++i) {
        bytes.at((row * grid.extent + fill.target_begin) * grid.inner + i) =
            from.at((row * extent + fill.source_begin) * grid.inner + i);
      }
    }
  }
  return bytes;
}

/// The shard of `rank` of a whole tensor: what is in one of its intervals along the split axis.
inline std::vector<std::byte> slice(const std::vector<std::byte>& whole, const Shape& shape,
                                    DType dtype, const Placement& placement, std::uint32_t rank,
                                    std::uint32_t world) {
  if (!holds(placement, rank)) return {};
  if (placement.kind != Placement::Kind::sharded || whole.empty()) return whole;
  const Grid grid(shape, placement.split.axis, dtype);
  std::vector<Interval> intervals;
  append_intervals(placement.split, grid.extent, rank, world, intervals);
  std::vector<std::byte> shard;
  for (std::uint64_t row = 0; row < grid.outer; ++row) {
    for (const Interval& kept : intervals) {
      const auto begin = whole.begin() +
                         static_cast<std::ptrdiff_t>((row * grid.extent + kept.begin) * grid.inner);
      shard.insert(shard.end(), begin,
                   begin + static_cast<std::ptrdiff_t>(kept.length * grid.inner));
    }
  }
  return shard;
}

}  // namespace safeshuffle::testing
