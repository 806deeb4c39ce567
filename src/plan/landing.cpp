#include "plan/landing.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "safeshuffle/error.hpp"

#include "plan/shard.hpp"

namespace safeshuffle::plan {
namespace {

bool has_bytes(const Shape& shape) {
  return std::find(shape.begin(), shape.end(), 0) == shape.end();
}

// A tensor of some shape, as rows along one axis.
struct Rows {
  std::uint64_t count = 1;
  std::uint64_t index_bits = 0;  // per index along the axis
};

Rows rows_along(const Shape& shape, std::uint32_t axis, DType dtype) {
  Rows rows{1, bits(dtype)};
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i < axis) rows.count *= shape[i];
    if (i > axis) rows.index_bits *= shape[i];
  }
  return rows;
}

std::uint64_t whole_bytes(std::uint64_t bit_count, const Schedule& schedule, const Target& target) {
  if (bit_count % 8 == 0) return bit_count / 8;
  throw PlanError(ErrorRecord{.tensor = name_of(target, schedule.catalog),
                              .cause = "it is composed of parts that end inside a byte"});
}

// A fill of a target, and the axis along which it is a part of it.
struct AxialFill {
  std::uint32_t axis = 0;
  Fill fill;
};

// The use of a tensor as it is stored is one fill along the axis that its other targets part it
// along.
AxialFill axial_fill(const Schedule& schedule, const Use& use) {
  if (const Fill* fill = fill_of(schedule, use)) {
    return {schedule.targets[use.target].composition->axis, *fill};
  }
  const std::uint32_t axis = cut_axis(schedule, use).value_or(0);
  const Shape& shape = schedule.catalog.tensors()[use.tensor].shape;
  return {axis, {use.tensor, 0, 0, shape.empty() ? 1 : shape[axis]}};
}

// Part of a fill that a rank keeps: indices from `fill_begin` of the fill are those from
// `shard_begin` of the shard.
struct KeptPart {
  std::uint64_t fill_begin = 0;
  std::uint64_t shard_begin = 0;
  std::uint64_t length = 0;
};

std::vector<KeptPart> kept_parts(const Schedule& schedule, const Target& target,
                                 const AxialFill& part_of, std::uint32_t rank) {
  if (shape_of(target, schedule.catalog).empty()) return {{0, 0, 1}};
  std::vector<Interval> intervals;
  append_shard_intervals(schedule, target, part_of.axis, rank, intervals);
  const Fill& fill = part_of.fill;
  std::vector<KeptPart> parts;
  std::uint64_t passed = 0;  // indices of the shard
  for (const Interval& kept : intervals) {
    const std::uint64_t begin = std::max(kept.begin, fill.target_begin);
    const std::uint64_t end = std::min(kept.begin + kept.length, fill.target_begin + fill.length);
    if (begin < end) {
      parts.push_back({begin - fill.target_begin, passed + (begin - kept.begin), end - begin});
    }
    passed += kept.length;
  }
  return parts;
}

// The columns of the share before `column`, which is one of them.
std::uint64_t columns_before(const RankColumns& share, std::uint64_t column) {
  std::uint64_t before = 0;
  for (const Columns& kept : share.columns()) {
    if (column < kept.end) return before + (column - kept.begin);
    before += kept.size();
  }
  return before;
}

class Unpacker {
 public:
  Unpacker(const Schedule& schedule, const Use& use, std::uint32_t rank, const RankColumns& share)
      : schedule_(schedule),
        use_(use),
        rank_(rank),
        share_(share),
        target_(schedule.targets[use.target]),
        part_(axial_fill(schedule, use)),
        shape_(shard_shape(shape_of(target_, schedule.catalog), target_.placement,
                           shard_index(schedule, rank), schedule.replica_size)),
        rows_(rows_along(shape_, part_.axis, schedule.dtypes[use.tensor])) {}

  Unpacking run() {
    if (!has_bytes(shape_) || share_.row_bytes() == 0) return {};
    unpacking_.rows = rows_.count;
    unpacking_.shard_row_bytes = shape_.empty() ? bytes(1) : bytes(shape_[part_.axis]);
    const std::optional<std::uint32_t> cut = cut_axis(schedule_, use_);
    if (cut.value_or(part_.axis) == part_.axis) {
      part_along();
    } else {
      join_across();
    }
    return std::move(unpacking_);
  }

 private:
  std::uint64_t bytes(std::uint64_t indices) const {
    return whole_bytes(indices * rows_.index_bits, schedule_, target_);
  }

  std::uint64_t converted(std::uint64_t stored) const {
    return converted_bytes(schedule_, use_.tensor, stored);
  }

  // The tensor is cut along the axis of the fill, or not at all: then its share is all of it.
  void part_along() {
    const TensorInfo& tensor = schedule_.catalog.tensors()[use_.tensor];
    const std::uint64_t stored_bits = rows_along(tensor.shape, part_.axis, tensor.dtype).index_bits;
    unpacking_.share_row_bytes =
        converted(schedule_.cuts[use_.tensor].rows * share_.row_bytes()) / rows_.count;
    for (const KeptPart& kept : kept_parts(schedule_, target_, part_, rank_)) {
      const std::uint64_t column = whole_bytes(
          (part_.fill.source_begin + kept.fill_begin) * stored_bits, schedule_, target_);
      const std::uint64_t begin = converted(columns_before(share_, column));
      unpacking_.strips.push_back({begin, begin + bytes(kept.length), bytes(kept.shard_begin)});
    }
  }

  // The tensor is cut along another axis, and the target has all of it along its own.
  void join_across() {
    RankColumns own;
    own.assign(schedule_, use_, rank_);
    if (own.row_bytes() != share_.row_bytes()) {
      throw PlanError(ErrorRecord{.tensor = schedule_.catalog.tensors()[use_.tensor].name,
                                  .cause = "its targets divide it in different ways"});
    }
    unpacking_.share_row_bytes = bytes(part_.fill.length);
    unpacking_.strips.push_back({0, unpacking_.share_row_bytes, bytes(part_.fill.target_begin)});
  }

  const Schedule& schedule_;
  const Use& use_;
  const std::uint32_t rank_;
  const RankColumns& share_;
  const Target& target_;
  const AxialFill part_;
  const Shape shape_;  // of the shard
  const Rows rows_;    // of the shard
  Unpacking unpacking_;
};

bool is_first_axis(const Composition& composition) {
  return std::all_of(composition.shape.begin(), composition.shape.begin() + composition.axis,
                     [](std::uint64_t extent) { return extent == 1; });
}

std::size_t stored_fills(const Composition& composition) {
  return static_cast<std::size_t>(
      std::count_if(composition.fills.begin(), composition.fills.end(),
                    [](const Fill& fill) { return fill.tensor != Fill::zeros; }));
}

}  // namespace

bool arrives_in_place(const Schedule& schedule, std::uint32_t tensor) {
  const std::span<const Use> uses = uses_of(schedule, tensor);
  if (uses.size() != 1) return uses.empty();
  if (parts_of(schedule, tensor) != nullptr) return false;
  const Fill* fill = fill_of(schedule, uses.front());
  if (fill == nullptr) return true;
  const Composition& composition = *schedule.targets[uses.front().target].composition;
  return stored_fills(composition) == 1 && fill->target_begin == 0 &&
         (composition.fills.size() == 1 || is_first_axis(composition));
}

bool is_padded(const Schedule& schedule, std::uint32_t tensor) {
  const std::span<const Use> uses = uses_of(schedule, tensor);
  if (uses.size() != 1 || schedule.lands[tensor]) return false;
  const auto& composition = schedule.targets[uses.front().target].composition;
  return composition && composition->fills.size() > 1;
}

Unpacking unpacking_of(const Schedule& schedule, const Use& use, std::uint32_t rank,
                       const RankColumns& share) {
  if (!holds(placement_of(schedule, use), shard_index(schedule, rank))) return {};
  return Unpacker(schedule, use, rank, share).run();
}

void append_unpack_items(const Unpacking& unpacking, DType dtype, const Range& share,
                         std::uint64_t landing_offset, std::uint64_t arena_offset,
                         std::vector<PackItem>& items) {
  const std::uint64_t row_bytes = unpacking.share_row_bytes;
  if (unpacking.strips.empty()) return;
  for (std::uint64_t at = share.begin; at < share.end;) {
    const std::uint64_t row = at / row_bytes;
    const std::uint64_t first = at % row_bytes;
    const bool whole = first == 0 && share.end - at >= row_bytes;
    const std::uint64_t rows = whole ? (share.end - at) / row_bytes : 1;
    const std::uint64_t last = whole ? row_bytes : std::min(row_bytes, first + (share.end - at));
    for (const Strip& strip : unpacking.strips) {
      const std::uint64_t begin = std::max(strip.begin, first);
      const std::uint64_t end = std::min(strip.end, last);
      if (begin >= end) continue;
      items.push_back({landing_offset + (row * row_bytes + begin - share.begin),
                       arena_offset + row * unpacking.shard_row_bytes + strip.shard_begin +
                           (begin - strip.begin),
                       rows, end - begin, rows == 1 ? end - begin : row_bytes,
                       rows == 1 ? end - begin : unpacking.shard_row_bytes, dtype, dtype,
                       PackTarget::arena});
    }
    at += whole ? rows * row_bytes : last - first;
  }
}

void append_zeros(const Schedule& schedule, std::uint32_t index, std::uint32_t rank,
                  std::uint64_t shard_offset, std::vector<Zeros>& zeros) {
  const Target& target = schedule.targets[index];
  const std::uint32_t shard = shard_index(schedule, rank);
  if (!target.composition || !holds(target.placement, shard)) return;
  const Composition& composition = *target.composition;
  const Shape shape =
      shard_shape(composition.shape, target.placement, shard, schedule.replica_size);
  if (!has_bytes(shape)) return;
  const Rows rows = rows_along(shape, composition.axis, schedule.dtypes[target.tensor]);
  const auto bytes = [&](std::uint64_t indices) {
    return whole_bytes(indices * rows.index_bits, schedule, target);
  };
  for (const Fill& fill : composition.fills) {
    if (fill.tensor != Fill::zeros) continue;
    for (const KeptPart& kept : kept_parts(schedule, target, {composition.axis, fill}, rank)) {
      zeros.push_back({shard_offset + bytes(kept.shard_begin), rows.count, bytes(kept.length),
                       bytes(shape[composition.axis])});
    }
  }
}

}  // namespace safeshuffle::plan
