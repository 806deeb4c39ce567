// The byte geometry of a stored tensor: which of its bytes each rank keeps for its targets, and in
// which order. What a rank keeps of one stored tensor is called its share; it is dense, and often a
// target's shard already.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "safeshuffle/metadata.hpp"
#include "safeshuffle/placement.hpp"

namespace safeshuffle::plan {

struct Schedule;
struct Use;

/// A tensor as `rows` rows of `row_bytes` stored bytes; every rank keeps the same columns of every
/// row. Tensors that are not split, or split along dim 0, are one row.
struct Cut {
  std::uint64_t rows = 1;
  std::uint64_t row_bytes = 0;
  std::uint64_t index_bits = 0;  ///< stored bits per index along the split axis
  bool operator==(const Cut&) const = default;
};

/// The axis along which ranks, or targets, need parts of the stored tensor; none if all need all of
/// it. Throws PlanError if there are several.
std::optional<std::uint32_t> cut_axis(const Schedule& schedule, std::uint32_t tensor);

/// The same, of the tensor of a use, whose other uses agree: examines them only if this one needs
/// all of it.
std::optional<std::uint32_t> cut_axis(const Schedule& schedule, const Use& use);

/// Throws PlanError if the tensor's targets need it divided along different axes, or if the axis
/// cannot be divided into bytes.
Cut cut_of(const Schedule& schedule, std::uint32_t tensor);

/// Half-open range of byte columns within a row.
struct Columns {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t size() const noexcept { return end - begin; }
  bool operator==(const Columns&) const = default;
};

/// The columns that are kept of every row: ascending, disjoint, non-empty.
struct KeptColumns {
  std::vector<Columns> columns;
  std::vector<std::uint64_t> before;  ///< for each of them: the bytes of the row kept before it
  std::uint64_t row_bytes = 0;        ///< kept of one row
  bool operator==(const KeptColumns&) const = default;

  /// Computes the other two from `columns`.
  void sum_up();
};

/// `columns`, in any order, as ascending and disjoint ones.
void unite(std::vector<Columns>& columns);

/// Of the stored bytes before `offset` of a tensor, those that are kept. `row_bytes`: of the
/// tensor; may be 0 if `offset` is.
std::uint64_t bytes_kept_before(std::uint64_t row_bytes, const KeptColumns& kept,
                                std::uint64_t offset);

/// What ranks need of a stored tensor for memory that their callers lend, as far as it does not
/// follow from the placement of a target. Tensors of the same parts share one object.
struct RankParts {
  std::uint64_t hash = 0;            ///< of what follows; good enough for tables
  std::uint64_t row_bytes = 0;       ///< the tensor as rows of so many bytes
  std::vector<KeptColumns> columns;  ///< by rank
  bool operator==(const RankParts&) const = default;
};

/// The columns that one rank keeps; none if it holds nothing.
class RankColumns {
 public:
  /// Recomputes for another tensor or rank: all that the rank's targets need of the tensor. Reuses
  /// memory, so that loops over ranks do not allocate. Throws PlanError if a boundary falls inside
  /// a byte.
  void assign(const Schedule& schedule, std::uint32_t tensor, std::uint32_t rank);

  /// As above, for one target only, which is in an arena.
  void assign(const Schedule& schedule, const Use& use, std::uint32_t rank);

  /// Valid until the next `assign`, and as long as the schedule.
  const KeptColumns& kept() const noexcept { return lent_ == nullptr ? own_ : *lent_; }

  std::span<const Columns> columns() const noexcept { return kept().columns; }

  /// Stored bytes of one row of the share.
  std::uint64_t row_bytes() const noexcept { return kept().row_bytes; }

 private:
  void append(const Schedule& schedule, const Use& use, std::uint32_t rank);

  std::vector<Interval> intervals_;
  KeptColumns own_;
  const KeptColumns* lent_ = nullptr;  // the schedule's, for lent memory
};

/// What a rank keeps of the stored bytes [begin, end) of a tensor: `bytes` stored bytes, which
/// start `prefix` stored bytes into all that it keeps of the tensor. They are contiguous there,
/// because columns ascend.
struct Share {
  std::uint64_t prefix = 0;
  std::uint64_t bytes = 0;
};

/// [begin, end) may be any stored bytes of the tensor.
Share share_of(const Cut& cut, const RankColumns& columns, std::uint64_t begin, std::uint64_t end);

/// What it takes the host to read `bytes` of a share from the page cache beyond reading as many in
/// one piece, in such bytes (core::cached_row_overhead).
std::uint64_t cached_overhead(const Cut& cut, const RankColumns& columns, std::uint64_t bytes);

}  // namespace safeshuffle::plan
