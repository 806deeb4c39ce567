// The byte geometry of a placement: which stored bytes of a tensor each rank keeps, and where in
// the shard they go.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "safeshuffle/metadata.hpp"
#include "safeshuffle/placement.hpp"

namespace safeshuffle::plan {

/// A tensor as `rows` rows of `row_bytes` stored bytes; every rank keeps the same columns of every
/// row. Tensors that are not split, or split along dim 0, are one row.
struct Cut {
  std::uint64_t rows = 1;
  std::uint64_t row_bytes = 0;
  std::uint64_t index_bits = 0;  ///< stored bits per index along the split axis
  bool operator==(const Cut&) const = default;
};

Cut cut_of(const TensorInfo& tensor, const Placement& placement);

/// Half-open range of byte columns within a row.
struct Columns {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t size() const noexcept { return end - begin; }
};

/// The columns that one rank keeps: ascending, disjoint, non-empty; empty if it holds nothing.
class RankColumns {
 public:
  /// Recomputes for another tensor or rank; reuses memory, so that loops over ranks do not
  /// allocate. Throws PlanError if a boundary falls inside a byte.
  void assign(const TensorInfo& tensor, const Placement& placement, const Cut& cut,
              std::uint32_t rank, std::uint32_t world);

  std::span<const Columns> columns() const noexcept { return columns_; }

  /// Stored bytes of one row of the shard.
  std::uint64_t row_bytes() const noexcept { return row_bytes_; }

 private:
  std::vector<Interval> intervals_;
  std::vector<Columns> columns_;
  std::uint64_t row_bytes_ = 0;
};

/// What a rank keeps of the stored bytes [begin, end) of a tensor: `bytes` stored bytes, which
/// start `prefix` stored bytes into its shard. They are contiguous there, because columns ascend.
struct Share {
  std::uint64_t prefix = 0;
  std::uint64_t bytes = 0;
};

/// [begin, end) may be any stored bytes of the tensor.
Share share_of(const Cut& cut, const RankColumns& columns, std::uint64_t begin, std::uint64_t end);

/// `stored` bytes of elements of type `from` after conversion to `to`.
inline std::uint64_t converted_bytes(std::uint64_t stored, DType from, DType to) noexcept {
  return from == to ? stored : stored / (bits(from) / 8) * (bits(to) / 8);
}

}  // namespace safeshuffle::plan
