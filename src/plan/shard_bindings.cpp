// Bindings that fill the shards of placed and composed targets.
#include <algorithm>
#include <utility>

#include "safeshuffle/binding.hpp"
#include "safeshuffle/error.hpp"

namespace safeshuffle {
namespace {

// Indices of a tensor, or zeros, that become indices of the shard, along one axis.
struct ShardPiece {
  std::uint32_t tensor = 0;
  std::uint64_t source_begin = 0;
  std::uint64_t shard_begin = 0;
  std::uint64_t length = 0;
};

class ShardBindings {
 public:
  ShardBindings(const Catalog& catalog, const Target& target, std::uint32_t rank,
                std::uint32_t world, const ShardMemory& memory)
      : catalog_(catalog),
        target_(target),
        rank_(rank),
        world_(world),
        memory_(memory),
        shape_(shape_of(target, catalog)),
        strides_(memory.strides.empty()
                     ? dense_strides(shard_shape(shape_, target.placement, rank, world))
                     : memory.strides) {
    if (strides_.size() != shape_.size()) fail("its sizes and strides differ in number");
  }

  std::vector<Binding> make() && {
    const Placement& placement = target_.placement;
    const bool is_split = placement.kind == Placement::Kind::sharded;
    const std::uint32_t split_axis = placement.split.axis;
    const std::uint32_t axis = target_.composition ? target_.composition->axis
                               : is_split          ? split_axis
                                                   : 0;
    for (const ShardPiece& piece : pieces_along(axis)) {
      if (!is_split || split_axis == axis) {
        bind(piece, {{axis, piece}});
        continue;
      }
      for (const ShardPiece& part : kept_along(split_axis)) {
        bind(piece, {{axis, piece}, {split_axis, part}});
      }
    }
    return std::move(bindings_);
  }

 private:
  using Along = std::pair<std::uint32_t, ShardPiece>;  // by axis

  [[noreturn]] void fail(std::string cause) const {
    throw PlanError(ErrorRecord{.tensor = name_of(target_, catalog_), .cause = std::move(cause)});
  }

  // What the rank keeps of the whole target.
  std::vector<ShardPiece> kept_along(std::uint32_t axis) const {
    const Placement& placement = target_.placement;
    std::vector<Interval> kept;
    if (shape_.empty()) return {{target_.tensor, 0, 0, 1}};
    if (placement.kind == Placement::Kind::sharded && placement.split.axis == axis) {
      append_intervals(placement.split, shape_[axis], rank_, world_, kept);
    } else {
      kept.push_back({0, shape_[axis]});
    }
    std::vector<ShardPiece> pieces;
    std::uint64_t shard_begin = 0;
    for (const Interval& interval : kept) {
      pieces.push_back({target_.tensor, interval.begin, shard_begin, interval.length});
      shard_begin += interval.length;
    }
    return pieces;
  }

  // The same, of what fills it.
  std::vector<ShardPiece> pieces_along(std::uint32_t axis) const {
    if (!target_.composition) return kept_along(axis);
    std::vector<ShardPiece> pieces;
    for (const ShardPiece& kept : kept_along(axis)) {
      for (const Fill& fill : target_.composition->fills) {
        const std::uint64_t begin = std::max(kept.source_begin, fill.target_begin);
        const std::uint64_t end =
            std::min(kept.source_begin + kept.length, fill.target_begin + fill.length);
        if (begin >= end) continue;
        pieces.push_back({fill.tensor, fill.source_begin + (begin - fill.target_begin),
                          kept.shard_begin + (begin - kept.source_begin), end - begin});
      }
    }
    return pieces;
  }

  void bind(const ShardPiece& piece, const std::vector<Along>& parts) {
    const bool is_zeros = piece.tensor == Fill::zeros;
    Shape sizes = shape_;
    std::uint64_t behind = 0;  // elements of the shard
    for (const auto& [axis, part] : parts) {
      if (sizes.empty()) continue;
      sizes[axis] = part.length;
      behind += part.shard_begin * strides_[axis];
    }
    const std::uint64_t bits_behind = behind * bits(memory_.dtype);
    if (bits_behind % 8 != 0) fail("a part of it begins inside a byte");
    Box box{{}, 0, sizes, {}, true};
    if (!is_zeros) box = source_box(piece.tensor, std::move(sizes), parts);
    bindings_.push_back({std::move(box), memory_.data + bits_behind / 8, memory_.dtype, strides_,
                         name_of(target_, catalog_)});
  }

  Box source_box(std::uint32_t index, Shape sizes, const std::vector<Along>& parts) const {
    const TensorInfo& tensor = catalog_.tensors()[index];
    if (catalog_.find(tensor.name) != &tensor) fail("another tensor has the name of a part of it");
    Box box{tensor.name, 0, std::move(sizes), dense_strides(tensor.shape)};
    for (const auto& [axis, part] : parts) {
      if (!box.strides.empty()) box.offset += part.source_begin * box.strides[axis];
    }
    return box;
  }

  const Catalog& catalog_;
  const Target& target_;
  const std::uint32_t rank_;
  const std::uint32_t world_;
  const ShardMemory& memory_;
  const Shape& shape_;  // of the whole target
  const std::vector<std::uint64_t> strides_;
  std::vector<Binding> bindings_;
};

}  // namespace

std::vector<std::uint64_t> dense_strides(const Shape& shape) {
  std::vector<std::uint64_t> strides(shape.size());
  std::uint64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) strides[i] = stride;
  return strides;
}

Box box_of(const TensorInfo& tensor, std::span<const Interval> indices) {
  Box box{tensor.name, 0, {}, dense_strides(tensor.shape)};
  for (std::size_t i = 0; i < indices.size(); ++i) {
    box.offset += indices[i].begin * box.strides[i];
    box.sizes.push_back(indices[i].length);
  }
  return box;
}

std::vector<Binding> bindings_of(const Catalog& catalog, const Target& target, std::uint32_t rank,
                                 std::uint32_t world, const ShardMemory& memory) {
  if (!holds(target.placement, rank)) return {};
  return ShardBindings(catalog, target, rank, world, memory).make();
}

}  // namespace safeshuffle
