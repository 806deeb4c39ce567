#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "core/arithmetic.hpp"
#include "plan/arena.hpp"
#include "plan/landing.hpp"
#include "plan/proof_item.hpp"
#include "plan/proof_parts.hpp"
#include "plan/shard.hpp"

namespace safeshuffle::plan {
namespace {

std::uint64_t size_of(const Unpacking& unpacking) {
  std::uint64_t bytes = 0;
  for (const Strip& strip : unpacking.strips) bytes += strip.end - strip.begin;
  return unpacking.rows * bytes;
}

// Where a byte of a shard comes from, by the placement and the composition alone, index by index.
class Origin {
 public:
  Origin(const Schedule& schedule, std::uint32_t target, std::uint32_t rank)
      : schedule_(schedule),
        target_(schedule.targets[target]),
        dtype_(schedule.dtypes[target_.tensor]),
        shape_(shard_shape(shape_of(target_, schedule.catalog), target_.placement,
                           shard_index(schedule, rank), schedule.replica_size)) {
    if (target_.placement.kind != Placement::Kind::sharded) return;
    append_shard_intervals(schedule, target_, target_.placement.split.axis, rank, kept_);
  }

  struct Byte {
    std::uint32_t tensor = 0;
    std::uint64_t offset = 0;  // converted, in the stored tensor; meaningless for zeros
  };

  Byte of(std::uint64_t shard_byte) const {
    const std::uint64_t bit = shard_byte * 8;
    std::vector<std::uint64_t> index = unravel(bit / bits(dtype_));
    if (!kept_.empty()) unshard(index[target_.placement.split.axis]);
    std::uint32_t tensor = target_.tensor;
    if (target_.composition) tensor = decompose(index[target_.composition->axis]);
    if (tensor == Fill::zeros) return {tensor, 0};
    const std::uint64_t element = ravel(index, schedule_.catalog.tensors()[tensor].shape);
    return {tensor, (element * bits(dtype_) + bit % bits(dtype_)) / 8};
  }

 private:
  std::vector<std::uint64_t> unravel(std::uint64_t element) const {
    std::vector<std::uint64_t> index(shape_.size());
    for (std::size_t i = shape_.size(); i-- > 0; element /= shape_[i]) {
      index[i] = element % shape_[i];
    }
    return index;
  }

  static std::uint64_t ravel(const std::vector<std::uint64_t>& index, const Shape& shape) {
    std::uint64_t element = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) element = element * shape[i] + index[i];
    return element;
  }

  // From an index of the shard to that of the whole target.
  void unshard(std::uint64_t& index) const {
    for (const Interval& kept : kept_) {
      if (index < kept.length) {
        index += kept.begin;
        return;
      }
      index -= kept.length;
    }
  }

  // From an index of the target to the tensor that fills it, and its index there.
  std::uint32_t decompose(std::uint64_t& index) const {
    const std::vector<Fill>& fills = target_.composition->fills;
    const Fill& fill = *(std::ranges::upper_bound(fills, index, {}, &Fill::target_begin) - 1);
    index = fill.source_begin + (index - fill.target_begin);
    return fill.tensor;
  }

  const Schedule& schedule_;
  const Target& target_;
  const DType dtype_;
  const Shape shape_;  // of the shard
  std::vector<Interval> kept_;
};

class CompositionProof {
 public:
  CompositionProof(const Schedule& schedule, const Geometries& geometries)
      : schedule_(schedule), geometries_(geometries) {}

  void check() {
    for (std::size_t i = 0; i < geometries_.example.size(); ++i) {
      if (geometries_.tensors[i] != 0) check_tensor(geometries_.example[i]);
    }
    for (const TargetGroup& group : target_groups(schedule_)) {
      if (schedule_.targets[group.example].composition) check_zeros(group.example);
    }
  }

 private:
  void check_tensor(std::uint32_t tensor) {
    if (is_target(schedule_, tensor) && !schedule_.lands[tensor]) return;
    for (std::uint32_t rank = 0; rank < schedule_.replica_size; ++rank) {
      share_.assign(schedule_, tensor, rank);
      for (const Use& use : uses_of(schedule_, tensor)) check_use(use, rank);
    }
  }

  // share_ is the rank's.
  void check_use(const Use& use, std::uint32_t rank) {
    own_.assign(schedule_, use, rank);
    if (own_.row_bytes() == 0) return;
    const std::uint64_t share = converted(use, share_.row_bytes());
    const Unpacking unpacking = schedule_.lands[use.tensor]
                                    ? unpacking_of(schedule_, use, rank, share_)
                                    : Unpacking{1, share, share, {{0, share, 0}}};
    if (unpacking.rows * unpacking.share_row_bytes != share ||
        size_of(unpacking) != converted(use, own_.row_bytes())) {
      fail(use, "is not all unpacked");
    }
    check_strips(unpacking, use, rank);
  }

  // Bytes of all rows, converted.
  std::uint64_t converted(const Use& use, std::uint64_t row_bytes) const {
    return converted_bytes(schedule_, use.tensor, schedule_.cuts[use.tensor].rows * row_bytes);
  }

  // Both share and shard have their elements in the order of indices, so the way from one to the
  // other ascends within a row: if the ends of a strip are right, so is all between them. Rows
  // repeat, so the first and the last represent all.
  void check_strips(const Unpacking& unpacking, const Use& use, std::uint32_t rank) const {
    const Origin origin(schedule_, use.target, rank);
    std::uint64_t free_from = 0;
    std::uint64_t shard_free_from = 0;
    for (const Strip& strip : unpacking.strips) {
      if (strip.begin < free_from || strip.begin >= strip.end ||
          strip.end > unpacking.share_row_bytes || strip.shard_begin < shard_free_from) {
        fail(use, "is unpacked twice");
      }
      free_from = strip.end;
      shard_free_from = strip.shard_begin + (strip.end - strip.begin);
      for (const std::uint64_t row : {std::uint64_t{0}, unpacking.rows - 1}) {
        const std::uint64_t from = row * unpacking.share_row_bytes + strip.begin;
        const std::uint64_t to = row * unpacking.shard_row_bytes + strip.shard_begin;
        const std::uint64_t last = strip.end - strip.begin - 1;
        check_byte(origin, use, from, to);
        check_byte(origin, use, from + last, to + last);
      }
    }
    if (shard_free_from > unpacking.shard_row_bytes) fail(use, "is unpacked past its target");
  }

  // Byte `from` of the share belongs at `to` of the shard.
  void check_byte(const Origin& origin, const Use& use, std::uint64_t from,
                  std::uint64_t to) const {
    const Origin::Byte byte = origin.of(to);
    if (byte.tensor != use.tensor || in_share(use, byte.offset) != from) {
      fail(use, "is unpacked to the wrong place");
    }
  }

  // From the converted offset in the stored tensor to that in the share.
  std::uint64_t in_share(const Use& use, std::uint64_t offset) const {
    const DType stored = schedule_.catalog.tensors()[use.tensor].dtype;
    const DType loaded = schedule_.dtypes[use.tensor];
    const std::uint64_t element_bytes = stored == loaded ? 1 : bits(loaded) / 8;
    const std::uint64_t stored_bytes = stored == loaded ? 1 : bits(stored) / 8;
    const std::uint64_t before =
        kept_before(schedule_.cuts[use.tensor], share_, offset / element_bytes * stored_bytes);
    return before / stored_bytes * element_bytes + offset % element_bytes;
  }

  // That zeros are where the composition asks for them, and that these and the shares are all.
  void check_zeros(std::uint32_t target) {
    for (std::uint32_t rank = 0; rank < schedule_.replica_size; ++rank) {
      const std::uint64_t bytes = shard_bytes(schedule_, target, rank, own_);
      if (bytes == 0) continue;
      const Origin origin(schedule_, target, rank);
      std::uint64_t filled = kept_of(target, rank);
      zeros_.clear();
      append_zeros(schedule_, target, rank, 0, zeros_);
      for (const Zeros& zeros : zeros_) {
        filled += zeros.rows * zeros.row_bytes;
        check_zero_rows(origin, zeros, target);
      }
      if (filled != bytes) fail_proof(name(target), "it is not all filled");
    }
  }

  void check_zero_rows(const Origin& origin, const Zeros& zeros, std::uint32_t target) const {
    for (const std::uint64_t row : {std::uint64_t{0}, zeros.rows - 1}) {
      const std::uint64_t begin = zeros.offset + row * zeros.stride;
      for (const std::uint64_t byte : {begin, begin + zeros.row_bytes - 1}) {
        if (origin.of(byte).tensor == Fill::zeros) continue;
        fail_proof(name(target), "zeros are written over other bytes");
      }
    }
  }

  // Bytes that the rank keeps of the target's stored tensors, converted.
  std::uint64_t kept_of(std::uint32_t target, std::uint32_t rank) {
    const std::vector<Fill>& fills = schedule_.targets[target].composition->fills;
    std::uint64_t bytes = 0;
    for (std::uint32_t i = 0; i < fills.size(); ++i) {
      if (fills[i].tensor == Fill::zeros) continue;
      const Use use{fills[i].tensor, target, i};
      own_.assign(schedule_, use, rank);
      bytes += converted(use, own_.row_bytes());
    }
    return bytes;
  }

  const std::string& name(std::uint32_t target) const {
    return name_of(schedule_.targets[target], schedule_.catalog);
  }

  [[noreturn]] void fail(const Use& use, const std::string& cause) const {
    fail_proof(name(use.target),
               "its part '" + schedule_.catalog.tensors()[use.tensor].name + "' " + cause);
  }

  const Schedule& schedule_;
  const Geometries& geometries_;
  RankColumns own_;    // of one use
  RankColumns share_;  // of all uses of its tensor
  std::vector<Zeros> zeros_;
};

}  // namespace

void prove_compositions(const Schedule& schedule, const Geometries& geometries) {
  CompositionProof(schedule, geometries).check();
}

}  // namespace safeshuffle::plan
