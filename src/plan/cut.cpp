#include "plan/cut.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <string>

#include "safeshuffle/error.hpp"

#include "core/cached_rows.hpp"
#include "plan/schedule.hpp"
#include "plan/shard.hpp"

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

// What of an interval of the target comes from the fill, as indices of its tensor.
Interval source_interval(const Interval& kept, const Fill& fill) {
  const std::uint64_t begin = std::max(kept.begin, fill.target_begin);
  const std::uint64_t end = std::min(kept.begin + kept.length, fill.target_begin + fill.length);
  if (begin >= end) return {};
  return {fill.source_begin + (begin - fill.target_begin), end - begin};
}

std::optional<std::uint32_t> split_axis(const Placement& placement) {
  return placement.kind == Placement::Kind::sharded ? std::optional(placement.split.axis)
                                                    : std::nullopt;
}

// The axis along which the target needs parts of the stored tensor; none if it needs all of it.
std::optional<std::uint32_t> axis_of(const Schedule& schedule, const Use& use) {
  const Target& target = schedule.targets[use.target];
  const std::optional<std::uint32_t> split = split_axis(target.placement);
  if (!target.composition) return split;
  const std::uint32_t axis = target.composition->axis;
  const TensorInfo& tensor = schedule.catalog.tensors()[use.tensor];
  if (target.composition->fills[use.fill].length == tensor.shape[axis]) return split;
  if (split.value_or(axis) == axis) return axis;
  throw PlanError(ErrorRecord{.tensor = tensor.name,
                              .cause = "target '" + target.composition->name +
                                       "' takes a part of it along axis " + std::to_string(axis) +
                                       " and splits it along axis " + std::to_string(*split) +
                                       "; both must be the same axis"});
}

}  // namespace

std::optional<std::uint32_t> cut_axis(const Schedule& schedule, std::uint32_t tensor) {
  std::optional<std::uint32_t> common;
  for (const Use& use : uses_of(schedule, tensor)) {
    const auto axis = axis_of(schedule, use);
    if (!axis) continue;
    if (common.value_or(*axis) != *axis) {
      throw PlanError(ErrorRecord{.tensor = schedule.catalog.tensors()[tensor].name,
                                  .cause = "its targets divide it along different axes"});
    }
    common = axis;
  }
  return common;
}

std::optional<std::uint32_t> cut_axis(const Schedule& schedule, const Use& use) {
  const auto axis = axis_of(schedule, use);
  return axis ? axis : cut_axis(schedule, use.tensor);
}

Cut cut_of(const Schedule& schedule, std::uint32_t index) {
  const TensorInfo& tensor = schedule.catalog.tensors()[index];
  if (const RankParts* parts = parts_of(schedule, index)) {
    return {tensor.bytes / parts->row_bytes, parts->row_bytes, 8};
  }
  const std::optional<std::uint32_t> axis = cut_axis(schedule, index);
  if (!axis) return {1, tensor.bytes, 0};
  const std::span<const std::uint64_t> shape(tensor.shape);
  const std::uint64_t rows = product(shape.first(*axis));
  const std::uint64_t index_bits = product(shape.subspan(*axis + 1)) * bits(tensor.dtype);
  if (rows == 0) return {0, 0, index_bits};
  return {rows, rows == 1 ? tensor.bytes : whole_bytes(shape[*axis] * index_bits, tensor),
          index_bits};
}

void KeptColumns::sum_up() {
  before.clear();
  row_bytes = 0;
  for (const Columns& interval : columns) {
    before.push_back(row_bytes);
    row_bytes += interval.size();
  }
}

void unite(std::vector<Columns>& columns) {
  const auto by_begin = [](const Columns& a, const Columns& b) { return a.begin < b.begin; };
  if (!std::ranges::is_sorted(columns, by_begin)) std::ranges::sort(columns, by_begin);
  std::size_t united = 0;
  for (const Columns& next : columns) {
    if (united != 0 && next.begin <= columns[united - 1].end) {
      columns[united - 1].end = std::max(columns[united - 1].end, next.end);
    } else {
      columns[united++] = next;
    }
  }
  columns.resize(united);
}

std::uint64_t bytes_kept_before(std::uint64_t row_bytes, const KeptColumns& kept,
                                std::uint64_t offset) {
  if (offset == 0) return 0;
  const std::uint64_t column = offset % row_bytes;
  const std::uint64_t in_rows = offset / row_bytes * kept.row_bytes;
  const auto after = std::ranges::lower_bound(kept.columns, column, {}, &Columns::begin);
  if (after == kept.columns.begin()) return in_rows;
  const auto last = static_cast<std::size_t>(after - kept.columns.begin()) - 1;
  const Columns& interval = kept.columns[last];
  return in_rows + kept.before[last] + (std::min(interval.end, column) - interval.begin);
}

// Several targets may need the same bytes, which are kept once, in the order of the tensor.
void RankColumns::assign(const Schedule& schedule, std::uint32_t tensor, std::uint32_t rank) {
  const RankParts* const parts = parts_of(schedule, tensor);
  lent_ = parts == nullptr ? nullptr : &parts->columns[rank];
  if (lent_ != nullptr) return;
  own_.columns.clear();
  const std::span<const Use> uses = uses_of(schedule, tensor);
  for (const Use& use : uses) append(schedule, use, rank);
  if (uses.size() > 1) unite(own_.columns);
  own_.sum_up();
}

void RankColumns::assign(const Schedule& schedule, const Use& use, std::uint32_t rank) {
  lent_ = nullptr;
  own_.columns.clear();
  append(schedule, use, rank);
  own_.sum_up();
}

void RankColumns::append(const Schedule& schedule, const Use& use, std::uint32_t rank) {
  const TensorInfo& tensor = schedule.catalog.tensors()[use.tensor];
  const Target& target = schedule.targets[use.target];
  if (tensor.bytes == 0 || !holds(target.placement, shard_index(schedule, rank))) return;
  const std::optional<std::uint32_t> axis = axis_of(schedule, use);
  if (!axis) {
    own_.columns.push_back({0, schedule.cuts[use.tensor].row_bytes});
    return;
  }
  intervals_.clear();
  append_shard_intervals(schedule, target, *axis, rank, intervals_);
  if (target.composition && target.composition->axis == *axis) {
    const Fill& fill = target.composition->fills[use.fill];
    for (Interval& interval : intervals_) interval = source_interval(interval, fill);
    std::erase_if(intervals_, [](const Interval& interval) { return interval.length == 0; });
  }
  const std::uint64_t index_bits = schedule.cuts[use.tensor].index_bits;
  for (const Interval& interval : intervals_) {
    const std::uint64_t begin = whole_bytes(interval.begin * index_bits, tensor);
    const std::uint64_t length = whole_bytes(interval.length * index_bits, tensor);
    own_.columns.push_back({begin, begin + length});
  }
}

Share share_of(const Cut& cut, const RankColumns& columns, std::uint64_t begin, std::uint64_t end) {
  if (begin == end || columns.row_bytes() == 0) return {};
  const std::uint64_t prefix = bytes_kept_before(cut.row_bytes, columns.kept(), begin);
  return {prefix, bytes_kept_before(cut.row_bytes, columns.kept(), end) - prefix};
}

std::uint64_t cached_overhead(const Cut& cut, const RankColumns& columns, std::uint64_t bytes) {
  const std::uint64_t row_bytes = columns.row_bytes();
  const bool one_piece = cut.rows <= 1 || row_bytes == 0 || row_bytes == cut.row_bytes;
  if (one_piece) return 0;
  return bytes / row_bytes * columns.columns().size() * core::cached_row_overhead(cut.row_bytes);
}

}  // namespace safeshuffle::plan
