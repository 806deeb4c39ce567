// Targets that are not received in place: which they are, and how the shares of stored tensors that
// land for them are unpacked into the arena.
#pragma once

#include <cstdint>
#include <vector>

#include "core/pack_item.hpp"
#include "plan/schedule.hpp"
#include "plan/segments.hpp"

namespace safeshuffle::plan {

/// Whether a rank's share of the tensor can be received in its place in the arena: if it has one
/// target only, of whose shard it is the beginning, and nothing follows but zeros. Never if it is
/// for lent memory.
bool arrives_in_place(const Schedule& schedule, std::uint32_t tensor);

/// Whether zeros follow the share of a tensor that arrives in place. It must be the last of its
/// slab: what follows it in a run does not follow it in the arena.
bool is_padded(const Schedule& schedule, std::uint32_t tensor);

/// Columns [begin, end) of a share's rows become columns of the shard's rows, from `shard_begin`.
struct Strip {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t shard_begin = 0;
};

/// How a rank's share of a stored tensor fills its shard of one target. In bytes after conversion.
struct Unpacking {
  std::uint64_t rows = 0;
  std::uint64_t share_row_bytes = 0;
  std::uint64_t shard_row_bytes = 0;
  std::vector<Strip> strips;  ///< of every row; ascending in both
};

/// `share`: the rank's columns of the tensor, of all uses. Throws PlanError if a boundary falls
/// inside a byte, or if the targets of the tensor divide it in ways that cannot be unpacked.
Unpacking unpacking_of(const Schedule& schedule, const Use& use, std::uint32_t rank,
                       const RankColumns& share);

/// Appends the items that bring the bytes `share` of a rank's share of a tensor, which landed at
/// `landing_offset`, to the shard at `arena_offset`.
void append_unpack_items(const Unpacking& unpacking, DType dtype, const Range& share,
                         std::uint64_t landing_offset, std::uint64_t arena_offset,
                         std::vector<PackItem>& items);

/// Bytes of an arena that are zero: `rows` rows of `row_bytes`, `stride` bytes apart.
struct Zeros {
  std::uint64_t offset = 0;
  std::uint64_t rows = 0;
  std::uint64_t row_bytes = 0;
  std::uint64_t stride = 0;
};

/// Appends the zeros in the shard of `rank` of a target, which lies at `shard_offset`.
void append_zeros(const Schedule& schedule, std::uint32_t target, std::uint32_t rank,
                  std::uint64_t shard_offset, std::vector<Zeros>& zeros);

}  // namespace safeshuffle::plan
