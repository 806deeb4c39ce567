// The heart of the proof: that one pack item brings the right bytes to the right place; and what
// the parts of the proof share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/arithmetic.hpp"
#include "core/pack_item.hpp"
#include "plan/cut.hpp"
#include "plan/schedule.hpp"
#include "plan/segments.hpp"
#include "plan/transfers.hpp"

namespace safeshuffle::plan {

/// Throws PlanError: the plan cannot be proved. `tensor` may be empty.
[[noreturn]] void fail_proof(const std::string& tensor, const std::string& cause);

/// Throws PlanError unless `condition` holds.
inline void require(bool condition, const char* cause) {
  if (!condition) fail_proof({}, cause);
}

/// Whether no two of the ranges overlap. Fast if they are already in order.
bool disjoint(std::vector<Range> ranges);

/// Stored bytes of the tensor in [begin, end) that `columns` keep, by definition.
std::uint64_t kept_bytes(const Cut& cut, const RankColumns& columns, std::uint64_t begin,
                         std::uint64_t end);

/// Stored bytes of the tensor before `offset` that `columns` keep.
std::uint64_t kept_before(const Cut& cut, const RankColumns& columns, std::uint64_t offset);

/// The segment that begins at or before `slab_offset`; there must be one. Throws PlanError.
const Segment& segment_of(const Slab& slab, std::uint64_t slab_offset);

/// A run that is sent from the slab, as the item that would have packed it: part of a row, or
/// several rows that the receiver keeps whole.
PackItem block_item(const Schedule& schedule, const Segment& segment, const Run& run);

/// Checks items one after the other, in packing order.
class ItemProof {
 public:
  explicit ItemProof(const Schedule& schedule) : schedule_(schedule) {}

  /// The rank and place where an item's destination ends up, and where the rank's share of the
  /// tensor begins there: modulo 2^64, since a segment may land without those before it.
  struct Place {
    std::uint32_t rank = 0;
    std::uint64_t offset = 0;
    std::uint64_t share_offset = 0;
  };

  /// Starts a new list of items.
  void start() noexcept { last_tensor_ = no_tensor; }

  /// Proves that the stored bytes of `item`, of `segment`, are columns that the rank keeps, all in
  /// one interval, and go where its share has them, and that they follow those of the item before.
  /// As stored → share is one-to-one, ascending items that do not overlap in the slab do not
  /// overlap at the destination either, and the returned number of bytes tells whether everything
  /// is written. Throws PlanError.
  std::uint64_t check(const Segment& segment, const PackItem& item, const Place& place);

 private:
  void check_ascending(std::uint32_t tensor, const PackItem& item);
  void check_place(const Segment& segment, const PackItem& item, const Place& place);

  static constexpr std::uint32_t no_tensor = ~std::uint32_t{0};

  const Schedule& schedule_;
  RankColumns columns_;
  std::uint32_t last_tensor_ = no_tensor;
  std::uint64_t last_rows_ = 0;
  std::uint64_t last_source_end_ = 0;
};

/// Checks everything that one rank sends another: items in the pack buffer, or a block of the slab.
/// place(segment, offset in the run) tells where that ends up. Returns the bytes written, without
/// gaps.
template <class PlaceOf>
std::uint64_t check_run(const Schedule& schedule, const Slab& slab, const Run& run,
                        std::span<const PackItem> items, ItemProof& proof, PlaceOf place) {
  proof.start();
  if (run.memory == RunMemory::slab) {
    require(items.empty(), "a run is packed and sent from the slab");
    const Segment& segment = segment_of(slab, run.offset);
    return proof.check(segment, block_item(schedule, segment, run), place(segment, 0));
  }
  std::uint64_t written = 0;
  for (const PackItem& item : items) {
    const std::uint64_t span =
        (item.rows - 1) * item.destination_stride + destination_row_bytes(item);
    require(item.target == PackTarget::pack_buffer && item.destination >= run.offset &&
                core::in_bounds(item.destination - run.offset, span, run.bytes),
            "a pack item writes outside its run");
    const Segment& segment = segment_of(slab, item.source);
    written += proof.check(segment, item, place(segment, item.destination - run.offset));
  }
  return written;
}

}  // namespace safeshuffle::plan
