// Proves what of a plan only one rank knows: how the memory that it has been lent is filled.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/pack_item.hpp"
#include "plan/lent_memory.hpp"
#include "plan/proof_item.hpp"
#include "plan/schedule.hpp"
#include "plan/transfers.hpp"

namespace safeshuffle::plan {

/// Proves, of a schedule that `prove` accepts, that every element of every copy is written once, as
/// the copy says: by decoding each item, from where its source lies in a slab or in what has
/// landed, to the stored byte, to the indices of the copy's loops, to its destination. That copies
/// do not overlap was checked when they were made (`lend`). Throws PlanError.
class DestinationProof {
 public:
  DestinationProof(const Schedule& schedule, std::uint32_t rank, const LentMemory& lent);

  /// Checks the items of one wave. Of each, the first and the last element of the first and the
  /// last row; all rows only if these do not lie at equal distances in the tensor by themselves.
  void check_wave(std::uint32_t wave, const Outgoing& outgoing, const Incoming& incoming);

  /// Call after the last wave.
  void check_all_written() const;

 private:
  // A segment, or what is kept of it, where items find it.
  struct Placed {
    Segment segment;
    std::uint64_t begin = 0;  // in the slab or landing buffer
    std::uint64_t end = 0;
    std::uint64_t prefix = 0;           // kept bytes of the tensor before it
    const KeptColumns* kept = nullptr;  // null: all of it is there
  };

  // Of a stored byte in a copy.
  struct Place {
    std::uint64_t destination = 0;
    std::uint64_t in_run = 0;            // stored bytes of its run that precede it
    std::vector<std::uint64_t> indices;  // by loop
  };

  void place_slab(std::uint32_t wave);
  void place_landed(const Run& run, std::uint32_t wave, bool replicated);
  void place_received(std::span<const Run> runs, std::uint32_t wave, bool replicated,
                      std::span<const PackItem>& spared);
  void check_items(std::span<const PackItem> items);
  void check_item(const Placed& placed, const PackItem& item);
  void require_row(const Placed& placed, const PackItem& item, std::uint64_t row,
                   std::uint64_t stored) const;
  std::uint64_t stored_at(const Placed& placed, std::uint64_t source) const;
  std::uint64_t stored_stride(const Placed& placed, const PackItem& item) const;
  void find_copy(std::uint32_t tensor, std::uint64_t stored, const PackItem& item);
  static std::optional<Place> place_of(const StridedCopy& copy, std::uint64_t stored);
  void check_rows(std::uint32_t tensor, std::uint64_t stored, const PackItem& item,
                  std::uint64_t stride);
  [[noreturn]] void fail(std::uint32_t tensor, const char* cause) const;

  const Schedule& schedule_;
  const std::uint32_t rank_;
  const LentMemory& lent_;
  std::vector<std::uint64_t> written_;  // by copy: stored bytes

  // Of the wave being checked.
  std::vector<Placed> placed_;           // ascending
  const Placed* last_placed_ = nullptr;  // of the item before, and its copy of this tensor
  std::size_t copy_ = 0;
  std::uint64_t free_from_ = 0;  // the stored byte behind that item
  Slab slab_;
  RankColumns columns_;
};

/// The same, of all waves. Takes about as much time as it takes a load to plan them.
void prove_destinations(const Schedule& schedule, std::uint32_t rank, const LentMemory& lent);

}  // namespace safeshuffle::plan
