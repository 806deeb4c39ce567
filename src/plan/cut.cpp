#include "plan/cut.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>

#include "safeshuffle/error.hpp"

namespace safeshuffle::plan {
namespace {

std::uint64_t product(std::span<const std::uint64_t> extents) {
  return std::accumulate(extents.begin(), extents.end(), std::uint64_t{1}, std::multiplies<>());
}

std::uint64_t whole_bytes(std::uint64_t bit_count, const TensorInfo& tensor) {
  if (bit_count % 8 != 0) {
    throw PlanError(ErrorRecord{.tensor = tensor.name,
                                .cause = "the split falls inside a byte: elements of " +
                                         std::string(name(tensor.dtype)) + " have " +
                                         std::to_string(bits(tensor.dtype)) + " bits"});
  }
  return bit_count / 8;
}

}  // namespace

Cut cut_of(const TensorInfo& tensor, const Placement& placement) {
  if (placement.kind != Placement::Kind::sharded) return {1, tensor.bytes, 0};
  const std::span<const std::uint64_t> shape(tensor.shape);
  const std::size_t axis = placement.split.axis;
  const std::uint64_t rows = product(shape.first(axis));
  const std::uint64_t index_bits = product(shape.subspan(axis + 1)) * bits(tensor.dtype);
  if (rows == 0) return {0, 0, index_bits};
  return {rows, rows == 1 ? tensor.bytes : whole_bytes(shape[axis] * index_bits, tensor),
          index_bits};
}

void RankColumns::assign(const TensorInfo& tensor, const Placement& placement, const Cut& cut,
                         std::uint32_t rank, std::uint32_t world) {
  columns_.clear();
  row_bytes_ = 0;
  if (tensor.bytes == 0 || !holds(placement, rank)) return;
  if (placement.kind != Placement::Kind::sharded) {
    columns_.push_back({0, tensor.bytes});
    row_bytes_ = tensor.bytes;
    return;
  }
  intervals_.clear();
  append_intervals(placement.split, tensor.shape[placement.split.axis], rank, world, intervals_);
  for (const Interval& interval : intervals_) {
    const std::uint64_t begin = whole_bytes(interval.begin * cut.index_bits, tensor);
    const std::uint64_t length = whole_bytes(interval.length * cut.index_bits, tensor);
    columns_.push_back({begin, begin + length});
    row_bytes_ += length;
  }
}

namespace {

// Of the stored bytes before `offset`, those that the rank keeps.
std::uint64_t kept_before(const Cut& cut, const RankColumns& columns, std::uint64_t offset) {
  if (offset == 0) return 0;
  const std::uint64_t column = offset % cut.row_bytes;
  std::uint64_t kept = offset / cut.row_bytes * columns.row_bytes();
  if (column == 0) return kept;
  for (const Columns& interval : columns.columns()) {
    if (interval.begin >= column) break;
    kept += std::min(interval.end, column) - interval.begin;
  }
  return kept;
}

}  // namespace

Share share_of(const Cut& cut, const RankColumns& columns, std::uint64_t begin, std::uint64_t end) {
  if (begin == end || columns.row_bytes() == 0) return {};
  const std::uint64_t prefix = kept_before(cut, columns, begin);
  return {prefix, kept_before(cut, columns, end) - prefix};
}

}  // namespace safeshuffle::plan
